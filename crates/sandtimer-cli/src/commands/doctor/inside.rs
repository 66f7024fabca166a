//! What a run reports of its environment, read from a command inside it.

use std::fs;

use sandtimer::Outcome;

use super::engine::RemedyContext;
use super::machine::value;
use super::report::LayerFinding;

/// Names in `isolation.degraded` that other layers of the report speak of.
const REPORTED_ELSEWHERE: [&str; 7] =
    ["namespaces", "landlock", "seccomp", "cgroup limits", "cgroup kill", "network namespace", "own uid"];

/// The first run's script, which prints its environment: one value a line.
pub(super) const SCRIPT: &str =
    "for n in mnt pid net ipc uts cgroup user; do echo \"ns-$n $(readlink /proc/self/ns/$n)\"; done
grep -E '^(Uid|CapEff|NoNewPrivs|Seccomp):' /proc/self/status
grep '^Max core' /proc/self/limits
grep -E '^[^ ]+ / ' /proc/self/mounts | sed 's/^/root /' | tail -n 1
echo \"visible $(ls /proc | grep -c '^[0-9]')\"
tail -n +3 /proc/self/net/dev | sed 's/^ */interface /;s/:.*//'";

/// The value after `key`, wherever that line is.
fn value_after<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}

pub(super) fn examine(outcome: &Outcome, context: &RemedyContext<'_>, layers: &mut Vec<LayerFinding>) {
    let text = outcome.stdout.as_str();
    layers.push(namespace_layers(text));
    layers.push(proc_mount(text));
    layers.push(network(text));
    layers.push(identity(text, context));
    layers.push(seals(text));
    layers.push(core_files(text));
    for degraded in &outcome.isolation.degraded {
        if !REPORTED_ELSEWHERE.contains(&degraded.layer.as_str()) {
            let name = format!("step: {}", degraded.layer);
            layers.push(
                LayerFinding::degraded(name, degraded.reason.clone())
                    .consequence("this step of the sandbox setup was refused; the run continued without it")
                    .remedy("see the error: a capability or a kernel option is missing"),
            );
        }
    }
}

fn same_namespace(text: &str, name: &str) -> bool {
    let own = fs::read_link(format!("/proc/self/ns/{name}")).unwrap_or_default();
    value_after(text, &format!("ns-{name} ")).is_none_or(|theirs| own.as_os_str() == theirs)
}

fn namespace_layers(text: &str) -> LayerFinding {
    let kinds = ["mnt", "pid", "net", "ipc", "uts", "cgroup"];
    let (shared, own): (Vec<&str>, Vec<&str>) = kinds.iter().partition(|kind| same_namespace(text, kind));
    let root = value_after(text, "root ").unwrap_or("not shown");
    let read_only =
        root.split(' ').nth(3).is_some_and(|options| options.split(',').any(|option| option == "ro"));
    let name = "isolation layers of a run";
    let evidence =
        format!("{}; its root is {root}", if own.is_empty() { "none".to_owned() } else { own.join(" ") });
    if shared.is_empty() && read_only {
        return LayerFinding::ok(name, evidence);
    }
    let what = if shared.is_empty() {
        "its root is writable".to_owned()
    } else {
        format!("it shares {}", shared.join(" "))
    };
    LayerFinding::missing(name, evidence)
        .consequence(format!("the code is not walled off: {what}"))
        .remedy("see `namespaces`")
}

fn proc_mount(text: &str) -> LayerFinding {
    let name = "its own /proc";
    match value_after(text, "visible ").and_then(|count| count.parse::<u64>().ok()) {
        Some(count @ 1..16) => LayerFinding::ok(name, format!("{count} processes to be seen, all its own")),
        Some(0) | None => LayerFinding::degraded(name, "not mounted")
            .consequence("programs that read /proc fail: many language runtimes and build tools")
            .remedy("in a container that masks parts of /proc: --security-opt systempaths=unconfined"),
        Some(count) => LayerFinding::missing(name, format!("{count} processes to be seen"))
            .consequence("the code sees processes of the host")
            .remedy("see `namespaces`"),
    }
}

fn network(text: &str) -> LayerFinding {
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("interface ")).collect();
    let outside: Vec<&&str> = names
        .iter()
        .filter(|name| {
            !matches!(
                **name,
                "lo" | "tunl0"
                    | "sit0"
                    | "ip6tnl0"
                    | "ip_vti0"
                    | "ip6_vti0"
                    | "gre0"
                    | "gretap0"
                    | "erspan0"
                    | "ip6gre0"
            )
        })
        .collect();
    let name = "network namespace";
    if !same_namespace(text, "net") && outside.is_empty() {
        return LayerFinding::ok(
            name,
            format!(
                "of its own, empty ({})",
                if names.is_empty() { "no interface".to_owned() } else { names.join(" ") }
            ),
        );
    }
    LayerFinding::missing(
        name,
        format!(
            "the run sees {}",
            if names.is_empty() { "the host's network".to_owned() } else { names.join(" ") }
        ),
    )
    .consequence("only seccomp and Landlock stand between the code and the network")
    .remedy("see `namespaces`; unshare(CLONE_NEWNET) needs CAP_SYS_ADMIN or a user namespace")
}

fn identity(text: &str, context: &RemedyContext<'_>) -> LayerFinding {
    let own = rustix::process::getuid().as_raw().to_string();
    let theirs = value_after(text, "Uid:").and_then(|ids| ids.split_whitespace().nth(1)).unwrap_or("unknown");
    let capabilities = value_after(text, "CapEff:").unwrap_or("unknown");
    let evidence =
        format!("the run is uid {theirs}, sandtimer is uid {own}; its capabilities: {capabilities}");
    let name = "own uid";
    let powerless = capabilities.chars().all(|digit| digit == '0');
    // In a user namespace 0 is the number of a user without powers outside.
    let is_root = theirs == "0" && same_namespace(text, "user");
    if is_root || theirs == "unknown" || !powerless {
        return LayerFinding::missing(name, evidence)
            .consequence("the code has powers over the host")
            .remedy("do not run untrusted code here");
    }
    if !context.root {
        return LayerFinding::degraded(name, evidence)
            .consequence("runs share the uid of the user who starts them: namespaces and Landlock alone keep them apart")
            .remedy("run sandtimer as the machine's root, or that of a container with as many uids: it gives each run an unused one");
    }
    LayerFinding::ok(name, evidence)
}

fn seals(text: &str) -> LayerFinding {
    let read = |key| value_after(text, key).unwrap_or("unknown");
    let (privileges, seccomp) = (read("NoNewPrivs:"), read("Seccomp:"));
    let evidence = format!("Seccomp: {seccomp} (2 is a filter), NoNewPrivs: {privileges}");
    if (privileges, seccomp) == ("1", "2") {
        return LayerFinding::ok("seccomp", evidence);
    }
    LayerFinding::missing("seccomp", evidence)
        .consequence("every system call of the kernel is open to the code")
        .remedy("use a kernel built with CONFIG_SECCOMP_FILTER")
}

fn core_files(text: &str) -> LayerFinding {
    let pattern = value("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let limit = value_after(text, "Max core file size")
        .and_then(|rest| rest.split_whitespace().nth(1))
        .unwrap_or("unknown");
    let evidence = format!("core_pattern={pattern}; RLIMIT_CORE of the run is {limit}");
    // Only a limit of exactly 1 keeps the kernel from starting a handler through a pipe; core(5).
    if limit == "1" || (limit == "0" && !pattern.starts_with('|')) {
        return LayerFinding::ok("core files", evidence);
    }
    LayerFinding::degraded("core files", evidence)
        .consequence(
            "a crash of the code starts the machine's crash handler, as root and outside the sandbox",
        )
        .remedy("sysctl -w kernel.core_pattern=core")
}

#[cfg(test)]
mod tests {
    use super::super::report::LayerStatus;
    use super::*;

    #[test]
    fn shared_namespaces_are_reported_missing() {
        let own = |name: &str| {
            fs::read_link(format!("/proc/self/ns/{name}")).expect("namespaces").display().to_string()
        };
        let mut text = String::new();
        for name in ["mnt", "pid", "ipc", "uts", "cgroup"] {
            text.push_str(&format!("ns-{name} {name}:[1]\n"));
        }
        text.push_str("root sandtimer / tmpfs ro,nosuid 0 0\n");
        let shared = format!("{text}ns-net {}\n", own("net"));
        assert_eq!(namespace_layers(&shared).status, LayerStatus::Missing);
        assert_eq!(network(&shared).status, LayerStatus::Missing);
        let private = format!("{text}ns-net net:[1]\ninterface lo\n");
        assert_eq!(namespace_layers(&private).status, LayerStatus::Ok);
        assert_eq!(network(&private).status, LayerStatus::Ok);
        assert_eq!(network(&format!("{private}interface eth0\n")).status, LayerStatus::Missing);
        assert_eq!(namespace_layers(&private.replace("ro,nosuid", "rw,nosuid")).status, LayerStatus::Missing);
    }

    #[test]
    fn powers_and_filters_are_read_from_the_status() {
        let context = RemedyContext { container: None, root: true };
        let text = |uid, capabilities| format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t{capabilities}\n");
        assert_eq!(identity(&text(1_879_048_192, "0000000000000000"), &context).status, LayerStatus::Ok);
        assert_eq!(identity(&text(1_879_048_192, "0000000000000020"), &context).status, LayerStatus::Missing);
        assert_eq!(identity(&text(0, "0000000000000000"), &context).status, LayerStatus::Missing);
        assert_eq!(identity("", &context).status, LayerStatus::Missing);
        assert_eq!(seals("NoNewPrivs:\t1\nSeccomp:\t2\n").status, LayerStatus::Ok);
        assert_eq!(seals("NoNewPrivs:\t1\nSeccomp:\t0\n").status, LayerStatus::Missing);
    }
}
