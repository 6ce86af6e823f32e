"""W7S: timers of one second in threads."""

import kopf
from reporting import GROUP, Window, traced

window = Window()


@kopf.timer(*GROUP, interval=1.0)
@traced
def bench_timer(name, **_):
    window.fire(name)
