"""Pure asyncio: backoff and supervision of tasks. Knows no Kubernetes."""
