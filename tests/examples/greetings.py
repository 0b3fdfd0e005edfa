"""An operator of a kind of its own (greetings.yaml): options, children, status, a finalizer and a task.

asyncop run greetings.py -n default --set controllers.greetings.word=Howdy
"""

import asyncio

import asyncop


class GreetingSpec(asyncop.Struct):
    to: tuple[str, ...] = ()


class GreetingStatus(asyncop.Struct):
    greeted: int = 0


class Greeting(asyncop.Object, api_version="example.com/v1", kind="Greeting"):
    spec: GreetingSpec = GreetingSpec()
    status: GreetingStatus = GreetingStatus()


class ConfigMap(asyncop.Object, api_version="v1", kind="ConfigMap"):
    data: dict[str, str] = asyncop.field(default_factory=dict)


class Options(asyncop.Struct):
    word: str = "Hello"
    look_again: asyncop.Duration = asyncop.Duration(60)


@asyncop.reconciler(
    Greeting,
    sources=[asyncop.owns(ConfigMap)],  # a child that is changed or deleted wakes its owner
    uses={ConfigMap: "delete"},  # so that a missing right is told at start
    options=Options,
)
async def greetings(greeting: Greeting, ctx: asyncop.Context) -> asyncop.Result:
    options: Options = ctx.options
    wanted = {f"{greeting.metadata.name}-{name}": f"{options.word}, {name}!" for name in greeting.spec.to}
    for name, text in wanted.items():
        await ctx.apply(ConfigMap(metadata=asyncop.ObjectMeta(name=name), data={"text": text}))
    for child in ctx.owned(ConfigMap):
        if child.metadata.name not in wanted:
            await ctx.client.delete(child)
    if "nobody" in greeting.spec.to:
        ctx.condition("Ready", False, "Nobody", "there is nobody to greet")
        raise asyncop.PermanentError("nobody can't be greeted")  # not tried again before something changes
    ctx.status(greeted=len(wanted))
    ctx.condition("Ready", True, "Greeted")
    return asyncop.Result(requeue_after=options.look_again)


@greetings.finalize
async def say_goodbye(greeting: Greeting, ctx: asyncop.Context) -> None:
    ctx.log.info("Goodbye", to=greeting.spec.to)  # its children go by themselves: they have it as their owner


@asyncop.task
async def count_for_ever(client: asyncop.Client) -> None:
    while True:
        found = await client.list(Greeting)
        print(f"{len(found)} greetings")
        await asyncio.sleep(60)
