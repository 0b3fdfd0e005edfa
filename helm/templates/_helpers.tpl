{{- /* Names, labels and what several templates must agree on. */ -}}

{{- define "asyncop.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "asyncop.fullname" -}}
{{- $name := include "asyncop.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* For objects outside of the release's namespace: two releases of one name must not share them. */ -}}
{{- define "asyncop.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "asyncop.fullname" .) }}
{{- end }}

{{- define "asyncop.serviceAccountName" -}}
{{- default (ternary (include "asyncop.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name }}
{{- end }}

{{- define "asyncop.selectorLabels" -}}
app.kubernetes.io/name: {{ include "asyncop.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "asyncop.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "asyncop.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "asyncop.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- /* The file for --config: the enabled controllers with their options as they stand in the values. */ -}}
{{- define "asyncop.config" -}}
{{- $enabled := dict }}
{{- range $name, $options := .Values.controllers }}
{{- if $options.enabled }}
{{- $_ := set $enabled $name $options }}
{{- end }}
{{- end }}
{{- if not $enabled }}
{{- fail "no controller is enabled, so there is nothing to run: try --set controllers.stuckPods.enabled=true" }}
{{- end }}
{{- toYaml (dict "controllers" $enabled) }}
{{- end }}

{{- define "asyncop.replicas" -}}
{{- if and (not .Values.leaderElection.enabled) (gt (int .Values.replicas) 1) }}
{{- fail (printf "replicas is %d, and without leader election each of them would act: set replicas=1, or leaderElection.enabled=true" (int .Values.replicas)) }}
{{- end }}
{{- int .Values.replicas }}
{{- end }}
