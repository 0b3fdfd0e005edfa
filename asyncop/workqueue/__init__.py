"""Keyed work queue with client-go's verbs: dedup, delays, priorities and backoff per key."""

from asyncop.workqueue.queue import Priority, QueueStatistics, WorkQueue

__all__ = ["Priority", "QueueStatistics", "WorkQueue"]
