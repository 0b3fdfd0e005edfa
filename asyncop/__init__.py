"""asyncop: an asyncio controller for Kubernetes, and the framework to write such controllers."""
