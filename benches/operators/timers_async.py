"""W7A: timers of one second in the event loop."""

import kopf
from reporting import GROUP, Window, traced

window = Window()


@kopf.timer(*GROUP, interval=1.0)
@traced
async def bench_timer(name, **_):
    window.fire(name)
