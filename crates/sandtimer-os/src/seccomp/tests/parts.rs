//! The parts of a policy that two programs share.

use super::super::{FilterPart, FilterPolicy, compile as compile_part};
use super::{ALLOW, POLICIES, RETURN, SEALED, Sequence, Syscall, X86_64, all_constants, compile, interpret};

const SUPERVISED: FilterPolicy = FilterPolicy { supervised: true, ..SEALED };

/// Strictest first; seccomp(2).
fn precedence(action: u32) -> i32 {
    action as i32 & 0xffff_0000_u32 as i32
}

#[test]
fn both_parts_together_are_the_whole() {
    for policy in POLICIES.iter().chain([&SUPERVISED]) {
        let whole = compile(policy);
        let parts = [FilterPart::Inherited, FilterPart::Rest].map(|part| compile_part(policy, part));
        let constants = all_constants(policy);
        let mut sequence = Sequence(7);
        for number in 0..=1024 {
            for _ in 0..200 {
                let architecture = if sequence.below(16) == 0 { 0x4000_0003 } else { X86_64 };
                let foreign = if sequence.below(16) == 0 { 0x4000_0000 } else { 0 };
                let arguments = std::array::from_fn(|_| sequence.argument(&constants));
                let call = Syscall { architecture, number: number | foreign, arguments };
                let strictest = parts
                    .iter()
                    .map(|part| interpret(part, &call).0)
                    .min_by_key(|&answer| precedence(answer));
                assert_eq!(strictest, Some(interpret(&whole, &call).0), "{policy:?} {call:x?}");
            }
        }
        assert!(parts[1].len() * 4 < whole.len(), "{} of {} instructions", parts[1].len(), whole.len());
    }
}

#[test]
fn what_is_inherited_lets_others_be_sealed() {
    for policy in POLICIES.iter().chain([&SUPERVISED]) {
        let inherited = compile_part(policy, FilterPart::Inherited);
        let calls = [
            (libc::SYS_clone3, [0, 0]),
            (libc::SYS_setns, [9, 0]),
            (libc::SYS_unshare, [libc::CLONE_NEWUSER as u64, 0]),
            (libc::SYS_prctl, [libc::PR_SET_DUMPABLE as u64, 1]),
            (libc::SYS_seccomp, [1, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER]),
        ];
        for (number, arguments) in calls {
            assert_eq!(interpret(&inherited, &Syscall::new(number, &arguments)).0, ALLOW, "{number}");
        }
        // And no rule asks: there is no listener.
        assert!(inherited.iter().all(|each| each.code != RETURN || each.k != 0x7fc0_0000));
    }
}
