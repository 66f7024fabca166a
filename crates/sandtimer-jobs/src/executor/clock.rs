//! The clock of the engine, which deadlines and logs of jobs follow.

use sandtimer::time::Moment;
use sandtimer_os::clock::monotonic_nanoseconds;

pub(super) fn now() -> Moment {
    Moment::from_nanos(monotonic_nanoseconds())
}
