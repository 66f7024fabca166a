//! The messages between the engine and its helper programs. Compiled into both; plain numbers, no
//! pointers.
//!
//! Three conversations, each over its own SEQPACKET socket: engine → launcher ([`Request`],
//! answered by [`Reply`]), engine ↔ init ([`Order`], [`Notice`]), engine → watchdog
//! ([`WatchdogOrder`], and a shared table of [`Row`]s). A jail itself is described by a program: a
//! memfd of [`StepHeader`] records, carried out in order.

/// First argument of the helper executable.
pub const ROLE_LAUNCHER: &str = "launcher";
pub const ROLE_WATCHDOG: &str = "watchdog";
/// The descriptor every helper finds its socket to the engine at.
pub const ENGINE_SOCKET: i32 = 3;

/// The steps of a program. The numbers and strings each one takes are listed with it.
pub mod op {
    /// Writes a string to a descriptor. numbers: fd index. strings: the bytes.
    pub const WRITE: u16 = 1;
    /// Makes all mounts private.
    pub const PRIVATE_MOUNTS: u16 = 2;
    /// A place is two strings: a directory that no job can write, and a path below it, without `..`
    /// (`.` for itself). No step follows a link to it. numbers: mount flags. strings: place,
    /// source, type, data.
    pub const MOUNT: u16 = 3;
    /// Clones a tree and attaches it to what exists at the place. numbers: attributes to set, fd
    /// index of an idmap user namespace or u64::MAX. strings: place, source.
    pub const BIND: u16 = 4;
    /// Makes a directory, on the same mount as the place's own directory; so do the next two. What
    /// exists stays. numbers: mode. strings: place.
    pub const DIRECTORY: u16 = 5;
    /// strings: place, what it points to.
    pub const SYMLINK: u16 = 6;
    /// numbers: mode. strings: place, contents.
    pub const FILE: u16 = 7;
    /// Makes a directory the root and drops the old root. strings: place.
    pub const PIVOT: u16 = 8;
    /// Changes mount attributes. numbers: attributes to set. strings: place.
    pub const MOUNT_ATTRIBUTES: u16 = 9;
    /// strings: name.
    pub const HOSTNAME: u16 = 10;
    /// numbers: resource, soft, hard.
    pub const RLIMIT: u16 = 11;
    /// The steps after this one, up to its [`JOIN`], are carried out by init's child, in parallel
    /// with init. numbers: uid, gid of init (u64::MAX: keep), capabilities init keeps, wall
    /// nanoseconds (u64::MAX: none), grace nanoseconds.
    pub const FORK: u16 = 12;
    /// numbers: uid, gid, then further groups.
    pub const IDENTITY: u16 = 13;
    /// Drops every capability.
    pub const NO_CAPABILITIES: u16 = 14;
    pub const NO_NEW_PRIVILEGES: u16 = 15;
    /// numbers: handled file accesses, handled network accesses, scopes, then one access mask per
    /// string. A path that leads through a link grants nothing, unless [`FOLLOW_LINKS`] is added to
    /// its mask. strings: paths.
    pub const LANDLOCK: u16 = 16;
    /// numbers: none; or 1: the engine is sent the listener, seccomp_unotify(2), for init; and then
    /// the fd index of the socket that it is sent over, if that is not the channel. strings: the
    /// BPF program.
    pub const SECCOMP: u16 = 17;
    /// As [`SECCOMP`], the rest of a filter of which the process has inherited the other part;
    /// without that it fails.
    pub const SECCOMP_REST: u16 = 34;
    /// strings: path.
    pub const WORKING_DIRECTORY: u16 = 18;
    pub const SESSION: u16 = 19;
    /// Waits for a second program. numbers: fd index of the dispatch socket.
    pub const PARK: u16 = 20;
    /// numbers: count of arguments. strings: path, arguments, environment.
    pub const EXECUTE: u16 = 21;
    /// numbers: mask.
    pub const UMASK: u16 = 22;
    /// Detaches a mount. strings: place.
    pub const UNMOUNT: u16 = 26;
    /// A user namespace of the process's own. strings: its uid_map, its gid_map: one line each, for
    /// its own ids.
    pub const USER_NAMESPACE: u16 = 28;
    /// In the child: waits until init has carried out everything before [`FORK`].
    pub const JOIN: u16 = 27;
    /// Becomes the reaper of orphaned descendants where there is no pid namespace.
    pub const SUBREAPER: u16 = 24;
    /// In place of [`FORK`], with the same numbers, the index of the timer of its deadline, and 1
    /// where its network namespace is its own: the command's process is put into the sandbox by a
    /// zygote.
    pub const SERVE: u16 = 29;
    /// Another user and group, keeping capabilities across the exec that follows. numbers: uid, gid
    /// (u64::MAX: keep both), mask of capabilities.
    pub const PRIVILEGED_IDENTITY: u16 = 30;
    /// Becomes a program that is given descriptors. numbers: count of arguments, then fd indices:
    /// these become descriptors 3, 4 and so on; a number in the upper half of the last one is the
    /// descriptor that it becomes instead. strings: as for [`EXECUTE`].
    pub const EXECUTE_WITH: u16 = 31;
    /// A terminal of the sandbox's own, for the session and in place of descriptor 0. numbers: 1 if
    /// in place of 1, and of 2, too. These are a socket until then, by which the master is sent; a
    /// byte that comes back means that it is set up.
    pub const TERMINAL: u16 = 33;
    /// After the last change of identity: the process may read its own files in /proc again, and
    /// dies with the engine.
    pub const OWN: u16 = 32;
    /// Mounts a procfs that shows processes and a few files, or nothing; see the helper's
    /// `proc.rs`. numbers: mount flags, how many files it shows, 1 if the engine is sent the file
    /// that is written. strings: place, options of procfs without `subset=`, a file to write first
    /// (or nothing), its contents; for each file that is shown its path, from the place's own
    /// directory on, and where it is shown; then names of procfs's own files.
    pub const PROC: u16 = 35;
    /// Mounts a procfs that shows processes only, unless [`PROC`] has mounted one. numbers: mount
    /// flags. strings: place, options.
    pub const PROC_OF_PROCESSES: u16 = 36;
    /// Mounts an overlay. EROFS if the kernel made it read-only, which it does silently if it
    /// cannot use the directory for its work. numbers: mount flags. strings: place, options.
    pub const OVERLAY: u16 = 37;
    /// As [`EXECUTE_WITH`], for the first of several paths that can be executed, as execvp(3) finds
    /// it. strings: the paths, separated by NUL; arguments, environment.
    pub const EXECUTE_SEARCH: u16 = 38;
    /// Init keeps a descriptor until it ends. numbers: fd index.
    pub const HOLD: u16 = 39;
    /// Init sends the engine its root directory ([`super::notice::ROOT`]).
    pub const SEND_ROOT: u16 = 48;
}

/// Added to an access mask of [`op::LANDLOCK`]: no job can change what the path leads through.
pub const FOLLOW_LINKS: u64 = 1 << 63;

/// Precedes each step of a program: `number_count` u64s, then `string_count` times a u32 length,
/// the bytes and a NUL, padded with zeros to a multiple of eight.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct StepHeader {
    pub op: u16,
    /// 1: a failure ends the run; 0: it is reported and the next step follows.
    pub required: u16,
    /// Length of the whole record in bytes.
    pub length: u32,
    pub number_count: u32,
    pub string_count: u32,
}

/// Kinds of [`Request`].
pub mod request {
    /// Start a sandbox. ESTALE: what is cloned into its cgroup dies at birth, and nothing was
    /// started; see [`ENTER_GROUP`]. Descriptors: program, control socket, stdin, stdout, stderr,
    /// then those steps name by index.
    pub const SPAWN: u32 = 1;
    /// Make a user namespace for idmapped mounts. `map` holds the lines for uid_map, then, after a
    /// NUL, gid_map.
    pub const USER_NAMESPACE: u32 = 2;
    /// Make the launcher's own namespaces. `flags` as for unshare(2); `map` as above, empty for
    /// none.
    pub const ENTER_NAMESPACES: u32 = 3;
    /// Carry out a program in the launcher's own mount namespace. Descriptors: program.
    pub const PREPARE: u32 = 4;
    /// Move into another v2 group. Descriptors: its cgroup.procs.
    pub const ENTER_GROUP: u32 = 5;
    /// Start a zygote: as [`SPAWN`], but the process carries out the program itself and ends in its
    /// last step, [`super::op::EXECUTE_WITH`].
    pub const ZYGOTE: u32 = 6;
    /// Start the process that makes network namespaces. Descriptors: its socket, for
    /// [`super::NetworkOrder`]s.
    pub const NETWORKS: u32 = 7;
    /// Send the launcher's own network namespace, ready for one sandbox: in place of
    /// [`NETWORKS`] where one sandbox is started. The reply has the errno of its loopback for a
    /// PID, or 0.
    pub const OWN_NETWORK: u32 = 8;
    /// Start a watchdog, before any other request: it is a copy of the launcher. Descriptors: its
    /// socket.
    pub const WATCHDOG: u32 = 9;
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Request {
    pub kind: u32,
    /// Length of `map` in use.
    pub map_length: u32,
    /// Flags for clone3(2) or unshare(2).
    pub flags: u64,
    /// Index of the cgroup descriptor for CLONE_INTO_CGROUP, or u32::MAX.
    pub cgroup: u32,
    /// Length of the program in bytes.
    pub program_length: u32,
    /// Index of the network namespace to start in, or u32::MAX for the one that the launcher is in:
    /// of its start, or of the last request that named one.
    pub network: u32,
    /// Index of the mount namespace to start in, or u32::MAX for the launcher's own.
    pub mounts: u32,
    pub map: [u8; 1024],
}

/// Kinds of [`NetworkOrder`].
pub mod network_order {
    /// Make a network namespace now.
    pub const MAKE: u32 = 1;
    /// Make `count` of them when there is no other order.
    pub const MAKE_SPARE: u32 = 2;
    /// Give the one that comes along back if nothing was left in it, else ENOTEMPTY. Its processes
    /// are dead.
    pub const CHECK: u32 = 3;
    /// Open what `count` names ([`super::network_object`]) in the namespace that comes along, and
    /// answer on the socket that comes with it: with a descriptor in place of a namespace.
    pub const OPEN: u32 = 4;
}

/// What can be opened in a network namespace, for a process that is not in it.
pub mod network_object {
    /// A socket that listens on 127.0.0.1, and one on ::1, at [`super::PROXY_PORT`].
    pub const PROXY_V4: u32 = 1;
    pub const PROXY_V6: u32 = 2;
    /// A datagram socket at 127.0.0.1, port 53, and one that listens there.
    pub const NAMES_DATAGRAM: u32 = 3;
    pub const NAMES_STREAM: u32 = 4;
    /// A socket for streams that is not connected.
    pub const CLIENT_V4: u32 = 5;
    pub const CLIENT_V6: u32 = 6;
    /// The table of TCP sockets, proc_pid_net(5).
    pub const TABLE_V4: u32 = 7;
    pub const TABLE_V6: u32 = 8;
}

/// Where a sandbox finds the proxy that carries its connections.
pub const PROXY_PORT: u16 = 3128;

/// What the engine asks of the process that makes network namespaces. Answered by a
/// [`NetworkReply`] for each namespace.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct NetworkOrder {
    pub kind: u32,
    pub count: u32,
}

/// The namespace comes with it when `error` is 0.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct NetworkReply {
    /// errno, or 0.
    pub error: i32,
    /// errno of bringing its loopback up, or 0.
    pub loopback: i32,
}

/// The launcher's answer. A pidfd or namespace descriptor comes with it when `error` is 0.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Reply {
    /// errno, or 0.
    pub error: i32,
    pub pid: i32,
}

/// Descriptors that come with [`request::SPAWN`], by index.
pub const FD_PROGRAM: usize = 0;
pub const FD_CONTROL: usize = 1;
pub const FD_STDIN: usize = 2;
pub const FD_STDOUT: usize = 3;
pub const FD_STDERR: usize = 4;
/// The first descriptor that steps name (index 0 in a step).
pub const FD_EXTRA: usize = 5;

/// What the engine asks of a zygote: a child in the namespaces of an init that serves. Answered by
/// a [`Reply`] with the child's pidfd. Descriptors: program, the pid namespace, the child's
/// channel, stdin, stdout, stderr, then those that the program's steps name by index, the cgroup,
/// and the other namespaces to enter.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Birth {
    /// Length of the program in bytes.
    pub program_length: u32,
    /// Index (among all descriptors) of the cgroup to be born in, or u32::MAX.
    pub cgroup: u32,
    /// Index (among all descriptors) of the first of the other namespaces; they come last.
    pub namespaces: u32,
    /// Index (among all descriptors) of a user namespace to enter before everything else, or
    /// u32::MAX.
    pub users: u32,
    /// 1: a caller waits for the child, so it does not run a dummy job first.
    pub hurried: u32,
}

/// Descriptors that come with a [`Birth`], by index.
pub const BIRTH_PROGRAM: usize = 0;
pub const BIRTH_PIDS: usize = 1;
pub const BIRTH_CHANNEL: usize = 2;
pub const BIRTH_STDIN: usize = 3;
/// What the child's standard output is written to first; see [`stdout`].
pub const BIRTH_OUTPUT: usize = 6;
pub const BIRTH_EXTRA: usize = 7;

/// Memory that a child's standard output is written to before the pipe. Its first word has four
/// parts: how many bytes were put there, how many of them are gone already, two flags, and a number
/// that changes whenever it is begun again.
pub mod stdout {
    /// Bytes of it, those before the data, and those of the data.
    pub const SIZE: usize = 65536;
    pub const HEADER: usize = 64;
    pub const CAPACITY: usize = SIZE - HEADER;
    pub const LENGTH: u64 = (1 << 20) - 1;
    pub const TAKEN: u64 = LENGTH << 20;
    /// Its process is writing what is there to the pipe.
    pub const BUSY: u64 = 1 << 40;
    /// It is the writer's alone.
    pub const PRIVATE: u64 = 1 << 41;
    /// One more of that number.
    pub const GENERATION: u64 = 1 << 42;
}

/// Precedes a job on a child's channel: this many records of [`ResourceLimit`], then the job's own
/// bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct JobHeader {
    pub limits: u32,
    /// The number of words of a mask that follows them: the processors that the process runs on
    /// from now on. It was bound to one.
    pub processors: u32,
}

/// A resource limit that a job's process puts on itself; prlimit(2).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ResourceLimit {
    pub resource: u64,
    pub soft: u64,
    pub hard: u64,
}

/// The longest packet on a channel.
pub const CHANNEL_PACKET: usize = 64 * 1024;

/// First byte of a packet from a child of a zygote, or to it.
pub mod channel {
    /// It is sealed and waits for its job.
    pub const READY: u8 = b'R';
    /// A step failed: errno as i32, then the step's number as u64.
    pub const FAILED: u8 = b'F';
    /// The job's answer; see the engine's `zygote` module.
    pub const ANSWER: u8 = b'A';
    /// From the engine: send the parts of the answer, for its memory cannot be read.
    pub const SEND: u8 = b'S';
    /// The holder of the descriptor that comes with this decides which signals the job may send,
    /// from before it has its job.
    pub const LISTENER: u8 = b'L';
    /// From the engine, to a process that is to take an image: the image, its files, and its base.
    pub const IMAGE: u8 = b'I';
    /// Length of the nonce of one execution in a context or session: it comes with the request, and
    /// the interpreter's packets about that execution begin with it. What has a copy of the channel
    /// from an earlier execution does not know it.
    pub const NONCE: usize = 8;
}

/// What a shell session's library and its script agree on.
pub mod shell {
    /// `kill -0` with this number takes the next command.
    pub const NEXT: i32 = 2_000_000_000;
    /// `kill -0` with this number and an exit code added reports that the command ended with it.
    pub const ENDED: i32 = 2_000_000_001;
    /// `kill -0` with this number reports that the command could not be read.
    pub const UNREAD: i32 = 1_999_999_999;
    /// `kill -0` with this number reports that the command has been read and begins.
    pub const BEGINS: i32 = 1_999_999_997;
    /// `kill -0` with this number succeeds where the library itself writes down what a shell that
    /// exits leaves to the next one.
    pub const LEAVES_STATE: i32 = 1_999_999_998;
    /// Where the channel is.
    pub const CHANNEL: i32 = 240;
    /// Where a command's descriptors are: stdout, stderr, stdin, its text, and a file for what the
    /// shell writes at its own end.
    pub const FIRST: i32 = 241;
    pub const COUNT: usize = 5;
    /// The length of the packet with how a command ended: its nonce, the head of an answer, and the
    /// exit code.
    pub const ANSWER: usize = super::channel::NONCE + 17;
    /// Bytes of what a shell that exits leaves to the next one. Variables that do not fit are left
    /// out.
    pub const MOST_STATE: usize = 1 << 20;
    /// The exit code of a command that the shell could not take.
    pub const NOT_TAKEN: i32 = 125;
}

/// The messages between a live JavaScript interpreter's add-on and the engine.
pub mod script {
    /// Length of the nonce that distinguishes a cell's messages from all others.
    pub const NONCE: usize = 16;
    /// First byte of an interpreter's packet about a cell; the nonce follows, and one of the kinds
    /// below.
    pub const SAID: u8 = b'J';
    pub const HEADER: usize = NONCE + 2;
    /// A part of the answer, and its end: the cell returned, or raised.
    pub const PART: u8 = b'p';
    pub const RETURNED: u8 = b'v';
    pub const RAISED: u8 = b'e';
    /// A part of something that is displayed, and its end.
    pub const DISPLAY_PART: u8 = b'd';
    pub const DISPLAY: u8 = b'D';
    /// Bytes of text in one packet.
    pub const MOST_OF_ONE: usize = 48 * 1024;
    /// Why there is no checkpoint.
    pub const NO_CHECKPOINT: &str = "JavaScript runs in threads, and a copy would have none of them";

    /// A cell, after an `X`. Its stdout and stderr come with it, its stdin if it has one, and a
    /// file of `length` bytes: its mode, one byte, and its text.
    #[repr(C)]
    #[derive(Debug, Clone, Copy)]
    pub struct Cell {
        pub nonce: [u8; NONCE],
        pub length: u64,
    }
}

/// Kinds of [`Notice`], from init to the engine.
pub mod notice {
    /// A step failed. a: step number, b: errno, c: 1 if it ended the run.
    pub const STEP_FAILED: u32 = 1;
    /// The sealed child waits for its second program, or everything is built that a zygote's child
    /// needs.
    pub const PARKED: u32 = 2;
    /// The command is about to be executed. a: time.
    pub const STARTED: u32 = 3;
    /// The command ended. a: wait status, b: user µs, c: system µs, d: peak resident KiB, e: time,
    /// f: processes still alive.
    pub const EXITED: u32 = 4;
    /// Init's own timer fired and it ends the sandbox. a: time, b: processes alive.
    pub const FIRED: u32 = 5;
    /// Answer to a sample. a: CPU µs of all, b: processes, c: resident bytes, d: threads.
    pub const SAMPLE: u32 = 6;
    /// Executing the command failed. a: errno.
    pub const EXECUTE_FAILED: u32 = 7;
    /// A namespace of the sandbox, as a descriptor. a: which, as for setns(2); its mount namespace
    /// always comes. Its holder delays the removal of the mounts, which waits for RCU, until init's
    /// death is known.
    pub const NAMESPACE: u32 = 8;
    /// Without a pid namespace: init has swept its descendants and ends. a: how many it could not
    /// end. In a live sandbox: all but its interpreter was ended. b: how many were killed; c: how
    /// many threads that interpreter has.
    pub const SWEPT: u32 = 9;
    /// The interpreter of a live sandbox; its pidfd comes with it. Answer to
    /// [`super::order::SUPERVISE`] with `argument` 1 or 2.
    pub const INTERPRETER: u32 = 11;
    /// A checkpoint is kept, and all signals that were ordered before are sent. Answer to
    /// [`super::order::KEEP`] with `value` 1.
    pub const KEPT: u32 = 12;
    /// The sandbox is back at a checkpoint. a: how many init could not end, b: how many were
    /// killed, c: the process that is active, 0 where it was gone; its pidfd comes with it.
    pub const ROLLED_BACK: u32 = 10;
    /// Answer to [`super::order::VACATE`]. a: 1 if init alone is alive, and the job has left no
    /// residue.
    pub const VACATED: u32 = 13;
    /// The file that the sandbox shows as /proc/meminfo, as a descriptor to write it by. Comes
    /// where [`super::op::PROC`] asks for it.
    pub const MEMORY_FILE: u32 = 14;
    /// The root directory, as a descriptor that names it and gives no access by itself. Comes where
    /// [`super::op::SEND_ROOT`] asks for it.
    pub const ROOT: u32 = 16;
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Notice {
    pub kind: u32,
    pub reserved: u32,
    pub a: u64,
    pub b: u64,
    pub c: u64,
    pub d: u64,
    pub e: u64,
    pub f: u64,
}

/// Where in the image of an interpreter the contents of its memory begin, in bytes: after a table,
/// most of which is a hole.
pub const IMAGE_CONTENTS: u64 = 209 * 4096;
/// The most contents of an image over another, in bytes: one of more is written whole.
pub const IMAGE_DELTA: u64 = 4 << 20;

/// Has a checkpoint continue, together with SIGCONT: that alone only ends a stop, and all processes
/// of a jail receive it when a pause ends. SIGRTMAX; signal(7).
pub const CHECKPOINT_CONTINUES: i32 = 64;

/// Kinds of [`Order`], from the engine to init.
pub mod order {
    /// Ends the sandbox at `value` (monotonic nanoseconds, u64::MAX: never) if the engine has not.
    /// With `argument` 1, only if that is earlier than what init knows already.
    pub const DEADLINE: u32 = 1;
    /// Sends signal `argument` to every process of the sandbox; to none if `value` is the token of
    /// the job that was there before; see [`VACATE`].
    pub const SIGNAL_ALL: u32 = 2;
    /// Sends signal `argument` to the command alone.
    pub const SIGNAL_MAIN: u32 = 3;
    /// Asks for a sample.
    pub const SAMPLE: u32 = 4;
    /// Ends the sandbox now.
    pub const END: u32 = 5;
    /// The wall and grace of a parked sandbox's run: `value` nanoseconds together.
    pub const CLOCK: u32 = 6;
    /// From now on it is a live sandbox: the end of the command's process does not end it. With it
    /// comes the listener of the calls that send signals; see [`super::channel::LISTENER`].
    /// `argument` 1: the command is a shell, and what signals all spares it and what it had started
    /// before the last [`KEEP`]. 2: an interpreter without checkpoints, and no listener comes.
    pub const SUPERVISE: u32 = 7;
    /// Process `argument` is a checkpoint: it is stopped, nothing in the sandbox reaches it by a
    /// signal, and it stays alive when init's timer ends everything else.
    pub const KEEP: u32 = 8;
    /// Kills checkpoint `argument`.
    pub const FORGET: u32 = 9;
    /// Kills all processes but init and the checkpoints, and has checkpoint `argument` continue. In
    /// a shell's jail it spares what was started before the last [`KEEP`].
    pub const ROLL_BACK: u32 = 10;
    /// Kills everything but init, the interpreter and the checkpoints, and in a shell's sandbox
    /// what was started before the last [`KEEP`]; answered by [`super::notice::SWEPT`].
    pub const SWEEP: u32 = 11;
    /// The only job there was is dead: may another begin in its place? It began when files were
    /// stamped with `value` (nanoseconds since 1970), and its token is `argument`. Answered by
    /// [`super::notice::VACATED`].
    pub const VACATE: u32 = 12;
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Order {
    pub kind: u32,
    pub argument: i32,
    pub value: u64,
}

/// How long after the hard deadline init ends the sandbox by itself.
pub const INIT_SLACK_NANOSECONDS: u64 = 100_000_000;
/// How long after the hard deadline the watchdog kills.
pub const WATCHDOG_SLACK_NANOSECONDS: u64 = 250_000_000;

/// Rows of the watchdog's table.
pub const ROWS: usize = 4096;

/// States of a [`Row`]: the lowest bits of its word. The others count how often it was armed.
pub mod row {
    pub const FREE: u32 = 0;
    pub const ARMED: u32 = 1;
    /// The watchdog killed it.
    pub const FIRED: u32 = 2;
    pub const STATE: u32 = 3;
    /// Added to the word each time the row is armed.
    pub const GENERATION: u32 = 4;
}

/// One run in the watchdog's table, in memory shared with the engine; every field is accessed
/// atomically.
#[repr(C)]
#[derive(Debug)]
pub struct Row {
    pub deadline: core::sync::atomic::AtomicU64,
    pub state: core::sync::atomic::AtomicU32,
    pub reserved: u32,
}

impl Row {
    /// The word of an armed row, and its deadline; the watchdog's. Firing needs the same word: a
    /// row that was armed again since, for another run or for a later end, has another.
    pub fn armed(&self) -> Option<(u32, u64)> {
        use core::sync::atomic::Ordering::SeqCst;
        let word = self.state.load(SeqCst);
        (word & row::STATE == row::ARMED).then(|| (word, self.deadline.load(SeqCst)))
    }

    /// Marks the row as killed, if its word is the one that was read with an overdue deadline.
    pub fn fire(&self, word: u32) -> bool {
        use core::sync::atomic::Ordering::SeqCst;
        let fired = word & !row::STATE | row::FIRED;
        self.state.compare_exchange(word, fired, SeqCst, SeqCst).is_ok()
    }

    /// Arms the row for this deadline; called by the engine. A row that was killed stays so until
    /// it is disarmed.
    pub fn arm(&self, deadline: u64) {
        use core::sync::atomic::Ordering::SeqCst;
        self.deadline.store(deadline, SeqCst);
        let armed = |word: u32| {
            let armed = (word & !row::STATE).wrapping_add(row::GENERATION) | row::ARMED;
            (word & row::STATE != row::FIRED).then_some(armed)
        };
        let _ = self.state.fetch_update(SeqCst, SeqCst, armed);
    }

    /// Frees the row; the state that it had.
    pub fn disarm(&self) -> u32 {
        self.state.fetch_and(!row::STATE, core::sync::atomic::Ordering::SeqCst) & row::STATE
    }
}

/// The shared table.
#[repr(C)]
#[derive(Debug)]
pub struct Table {
    /// When the watchdog will look next; the engine wakes it for anything earlier.
    pub next_look: core::sync::atomic::AtomicU64,
    /// Rows from this one on were never armed. It only grows: a watchdog of an engine that runs one
    /// command reads one page of the table.
    pub armed_end: core::sync::atomic::AtomicU64,
    pub rows: [Row; ROWS],
}

impl Table {
    /// The rows that may be armed; the watchdog's.
    pub fn used_rows(&self) -> &[Row] {
        let end = self.armed_end.load(core::sync::atomic::Ordering::SeqCst) as usize;
        &self.rows[..end.min(ROWS)]
    }

    /// Arms a row for this deadline, as [`Row::arm`]. The watchdog then finds the row when it reads
    /// the table next.
    pub fn arm(&self, index: usize, deadline: u64) {
        use core::sync::atomic::Ordering::SeqCst;
        let end = index as u64 + 1;
        // First: the watchdog that reads the old end also reads the table before the engine reads
        // when it will look next.
        if self.armed_end.load(SeqCst) < end {
            self.armed_end.fetch_max(end, SeqCst);
        }
        self.rows[index].arm(deadline);
    }
}

/// Kinds of [`WatchdogOrder`].
pub mod watchdog_order {
    /// The table's memfd comes with it. First message.
    pub const TABLE: u32 = 1;
    /// How to kill row `row`: the cgroup.kill file comes with it; kept until replaced.
    pub const CGROUP: u32 = 2;
    /// How to kill row `row`: the pidfd of its init comes with it; kept until replaced or dropped.
    pub const PIDFD: u32 = 3;
    /// As PIDFD, where init must sweep before it dies: it gets SIGTERM.
    pub const SWEEPER: u32 = 7;
    /// Row `row` ended; forget its pidfd.
    pub const FORGET: u32 = 4;
    /// Has the watchdog read the table now.
    pub const LOOK: u32 = 5;
    /// A directory whose subdirectories `run-<row>` the watchdog removes when the engine is gone.
    pub const DIRECTORY: u32 = 6;
    /// A descriptor to hold for as long as the watchdog lives.
    pub const HOLD: u32 = 8;
    /// The engine's own process, as a pidfd: a child that a host program forked may hold the
    /// engine's socket open for long.
    pub const ENGINE: u32 = 9;
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct WatchdogOrder {
    pub kind: u32,
    pub row: u32,
}
