//! Branches: contexts that begin with what another one is, and have nothing else in common with it.
//!
//! ```text
//! origin idle ─▶ image written ─▶ sealed ─▶ taken by sealed children of the same zygote ─▶ checkpoint made: contexts
//!                    └─▶ why not: refused, the origin is as it was      └─▶ some fail: others, once ─▶ again: all of them are ended
//! ```
//! Warm children are notified before the image is written, and of the base that it will most likely
//! have: they map that base while the origin writes. An image is the engine's file, written by the
//! origin's interpreter and sealed before a child maps it. Here it is owned by the origin and by
//! each branch, for later images over it. docs/design/branches.md says why it is not a fork.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fstat, ftruncate, memfd_create,
};
use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::processors::Processors;
use sandtimer_os::program::seal;
use sandtimer_os::wire::{IMAGE_CONTENTS, IMAGE_DELTA};
use sandtimer_os::zygote as os;

use super::super::children::Child;
use super::super::error::{BRANCHES, Error};
use super::super::opened::{self, OpenedRun};
use super::super::pre_warmer::ChildPool;
use super::super::spec::Spec;
use super::super::which_processor::ActiveWork;
use super::super::workspace::remove_workspace;
use super::super::zygotes::Zygote;
use super::context::Context;
use super::image_account::{Charge, ImageAccount};
use super::images::{EngineCharges, ImageFile, Images, lock};
use super::interpreter::{LiveInterpreter, renew};
use super::spec::{ContextSpec, run_of, variables};
use super::turns::ContextTurn;
use crate::context::{Frame, IMAGE, ImageResult, Nonce, image_request};
use crate::limits::Limits;
use crate::model::LimitKind;
use crate::zygote::Language;

/// How long an image may take: writing takes a second for each GB. Infrastructure: always finite.
const IMAGE_LIMIT: u64 = 30_000_000_000;
/// What an image may grow from one to the next without being asked for again.
const IMAGE_GROWTH_BYTES: u64 = 256 << 10;
/// An image up to this size gets its memory while the interpreter prepares: every later one over
/// the first.
const MAX_EARLY_IMAGE_BYTES: u64 = 8 << 20;
/// How often an image is asked for: short as the last one was, as long as it is found to be, whole
/// where it has just become too long for one over another, and once more if the interpreter has
/// grown since then.
const TRIES: usize = 4;
/// The longest image over another.
const MAX_DELTA_BYTES: u64 = IMAGE_CONTENTS + IMAGE_DELTA;
/// The largest image, without its table; for a context with a memory limit no more than that.
const MAX_IMAGE_BYTES: u64 = 5 << 30;
/// How many times its memory limit the images of one interpreter may be charged to the engine, from
/// the first one on: the engine cannot know whether the interpreter still has the earlier ones.
/// Later images are charged to the interpreter.
const MAX_ON_ENGINE: u64 = 2;

/// The number of branches to make, and their limits.
#[derive(Debug, Clone, Default)]
pub struct BranchSpec {
    /// From 1 to [`BRANCHES`].
    pub count: usize,
    /// The limits of each branch as a whole; where unset, the origin's.
    pub limits: Limits,
    /// They work in the origin's [`ContextSpec::workspace`] and [`ContextSpec::temporary`].
    /// Otherwise each has a copy of the files that are there.
    pub shares_workspace: bool,
}

impl Context {
    /// Makes contexts that begin with all that this one is when its turn has come: variables,
    /// imports, random numbers to come, files in its own directories. Each has a sandbox of its
    /// own, and none ends with another.
    ///
    /// # Errors
    /// [`Error::NoBranch`] where they would not be what this is, and why; [`Error::BranchCount`];
    /// as [`Contexts::open`](super::Contexts::open).
    ///
    /// ```
    /// use sandtimer::{BranchSpec, CellSpec, ContextSpec, Engine, Profile};
    ///
    /// let engine = Engine::new()?;
    /// let profile = Profile { interpreter: "python3".into(), ..Profile::default() };
    /// let contexts = engine.contexts(profile, 1)?;
    /// let context = contexts.open(ContextSpec::default(), &mut || false)?;
    /// let cell = |source: &str| CellSpec { source: source.to_owned(), ..CellSpec::default() };
    /// context.execute(cell("x = 1"), &mut |_| {})?;
    /// let branches = context.branch(&BranchSpec { count: 2, ..BranchSpec::default() })?;
    /// branches[0].execute(cell("x = 2"), &mut |_| {})?;
    /// let outcome = branches[1].execute(cell("x"), &mut |_| {})?;
    /// assert_eq!(outcome.results[0]["text/plain"], "1");
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn branch(&self, spec: &BranchSpec) -> Result<Vec<Context>, Error> {
        self.branch_unless(spec, self.queue(), &|| false)
    }

    /// As [`Context::branch`], for a caller that may have left before it begins.
    ///
    /// # Errors
    /// As [`Context::branch`].
    pub fn branch_unless(
        &self,
        spec: &BranchSpec,
        turn: ContextTurn,
        is_withdrawn: &dyn Fn() -> bool,
    ) -> Result<Vec<Context>, Error> {
        if !(1..=BRANCHES).contains(&spec.count) {
            return Err(Error::BranchCount(spec.count));
        }
        let refused = |reason: &str| Err(Error::NoBranch(reason.to_owned()));
        let Some(source) = &self.source else {
            return refused("it is a session, and only Python contexts can be branched");
        };
        if source.profile.language != Language::Python {
            return refused(
                "its interpreter has threads of its own, and only Python contexts can be branched",
            );
        }
        if self.spec.sandbox.is_some() {
            return refused("it is in a sandbox, whose files a branch would not have for itself");
        }
        self.wait_for(&turn, is_withdrawn)?;
        let mut holder = self.standing();
        self.ready(&mut holder, is_withdrawn)?;
        let Some(interpreter) = holder.as_mut() else { return Err(Error::Closed) };
        interpreter.checkpoint().map_err(Error::NoBranch)?;
        let Some(zygote) = interpreter.zygote.clone().filter(|zygote| !zygote.is_dead()) else {
            return refused("what its interpreter was forked from has ended; open another context");
        };
        let shared = |directory: &Option<PathBuf>| directory.clone().filter(|_| spec.shares_workspace);
        let (workspace, temporary) = (shared(&self.spec.workspace), shared(&self.spec.temporary));
        let limits = spec.limits.clone().or(&self.spec.limits);
        let own = ContextSpec { limits, workspace, temporary, ..self.spec.clone() };
        // A warm interpreter has directories of its own.
        let children = match own.directories() {
            None => source.take_of(&zygote, spec.count),
            Some(_) => Vec::new(),
        };
        let mut waiting = PendingBranches::open(source, &own)?;
        let (_under_way, is_alone) = ActiveWork::begin(&self.inner.cells);
        // One of the two works here, one elsewhere.
        let over = Some(&interpreter.images).filter(|images| images.has_usable_base());
        let apart = is_alone && children.len() == 1 && over.is_some();
        for child in children {
            match waiting.assign(child, over, apart) {
                // It died while it waited: another one is made.
                Err(Error::System { .. }) => source.lock().stats.lost += 1,
                assigned => assigned?,
            }
        }
        let lacking = spec.count - waiting.interpreters.len();
        let most = self.max_image_bytes(source)?;
        let account = self.spec.images.as_ref();
        let mut write = || write(interpreter, most, account, spec.shares_workspace, apart && lacking == 0);
        let written = match lacking {
            0 => write()?,
            _ => {
                let (written, born) = std::thread::scope(|scope| {
                    let bear = || bear(source, &zygote, &own, lacking);
                    // Without a thread of their own they are made afterwards.
                    let born = std::thread::Builder::new().spawn_scoped(scope, bear);
                    let written = write();
                    (written, born.map_or_else(|_| Ok(bear()), |born| born.join()))
                });
                let (born, written) = (born.map_err(|_| Error::Closed)??, written?);
                born.into_iter().try_for_each(|child| waiting.assign(child, None, false))?;
                written
            }
        };
        let end = monotonic_nanoseconds().saturating_add(IMAGE_LIMIT);
        if let Err(error) = waiting.take(&written, end) {
            if monotonic_nanoseconds() >= end {
                return Err(error);
            }
            self.check_wanted(is_withdrawn)?;
            // A child that was assigned may have died since, or earlier mappings may prevent it
            // from mapping the image: once more, with other children.
            let born = bear(source, &zygote, &own, spec.count - waiting.became.len()).map_err(|_| error)?;
            born.into_iter().try_for_each(|child| waiting.assign(child, None, false))?;
            waiting.take(&written, end)?;
        }
        let interpreters = std::mem::take(&mut waiting.became);
        let context = |mut interpreter: LiveInterpreter| {
            let workspace = own.workspace.clone().or_else(|| interpreter.own_workspace.take());
            Context::new(
                self.inner.clone(),
                Some(source.clone()),
                ContextSpec { workspace, ..own.clone() },
                Some(interpreter),
            )
        };
        Ok(interpreters.into_iter().map(context).collect())
    }
}

impl Context {
    /// How long an image may be: what the context itself may use.
    fn max_image_bytes(&self, source: &Arc<ChildPool>) -> Result<u64, Error> {
        let opened = opened::open(&self.inner, &run_of(source, &self.spec))?;
        opened::close(&self.inner, opened.scope);
        let limit = opened.effective.get(LimitKind::Memory).map_or(MAX_IMAGE_BYTES, |effect| effect.value);
        Ok(limit.saturating_add(IMAGE_CONTENTS).min(MAX_IMAGE_BYTES))
    }
}

/// Makes sealed children of the zygote.
fn bear(
    source: &Arc<ChildPool>,
    zygote: &Arc<Zygote>,
    spec: &ContextSpec,
    count: usize,
) -> Result<Vec<Child>, Error> {
    let (left, born) = (AtomicUsize::new(count), Mutex::new(Vec::new()));
    let work = || {
        let another = |left: usize| left.checked_sub(1);
        while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, another).is_ok() {
            let made = source.make_of(zygote, &spec.directories().unwrap_or_default());
            if made.is_err() {
                left.store(0, Ordering::Relaxed);
            }
            born.lock().unwrap_or_else(PoisonError::into_inner).push(made);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..count.min(sandtimer_os::probe::processors()) {
            // This thread does the work of those that could not be started.
            if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    born.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect()
}

/// An image that is sealed: no process can change it.
struct WrittenImage {
    image: Arc<ImageFile>,
    files: Arc<OwnedFd>,
    /// Of the origin, which wrote it, and of every branch that takes it.
    images: Images,
}

/// A file that an interpreter writes to. It is emptied unless it is kept: the interpreter has a
/// descriptor of it, and its memory is the engine's.
struct Draft {
    /// There until it is sealed.
    file: Option<OwnedFd>,
    /// What it takes of the engine's memory, and all that is taken so.
    bytes: u64,
    charge: Option<Arc<Charge>>,
    on_engine: Arc<Mutex<EngineCharges>>,
}

impl Draft {
    fn new(name: &str, on_engine: &Arc<Mutex<EngineCharges>>) -> rustix::io::Result<Self> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        Ok(Draft { file: Some(file), bytes: 0, charge: None, on_engine: on_engine.clone() })
    }

    /// Takes `bytes` of the engine's memory for it. False where that would be more than `most` of
    /// this interpreter, or more than the account has.
    fn charge(&mut self, bytes: u64, most: u64, account: Option<&ImageAccount>) -> bool {
        let mut on_engine = lock(&self.on_engine);
        let sum = on_engine.bytes.saturating_add(bytes);
        let charge = account.map(|account| account.charge(bytes));
        if sum > most || matches!(charge, Some(None)) {
            return false;
        }
        (on_engine.bytes, self.bytes) = (sum, bytes);
        self.charge = charge.flatten().map(Arc::new);
        true
    }

    fn file(&self) -> std::io::Result<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd).ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }

    /// The file, sealed against changes.
    fn seal(mut self) -> std::io::Result<ImageFile> {
        // Where that fails it is still a draft.
        seal(self.file.as_ref().ok_or(std::io::ErrorKind::NotFound)?)?;
        let file = self.file.take().ok_or(std::io::ErrorKind::NotFound)?;
        let charge = self.charge.take();
        lock(&self.on_engine).charges.extend(charge.clone());
        Ok(ImageFile { file, charge })
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let Some(file) = &self.file else { return };
        let mut on_engine = lock(&self.on_engine);
        match ftruncate(file, 0) {
            Ok(()) => on_engine.bytes -= self.bytes,
            // It cannot be cut where the interpreter has sealed it, and counts on.
            Err(_) => on_engine.charges.extend(self.charge.take()),
        }
    }
}

/// Has the interpreter write an image of itself, of `most` bytes at the most, on this account.
/// `apart`: not on this thread's processor, where it can be bound.
fn write(
    interpreter: &mut LiveInterpreter,
    most: u64,
    account: Option<&ImageAccount>,
    shares: bool,
    apart: bool,
) -> Result<WrittenImage, Error> {
    let doing = "cannot make an image of the interpreter";
    let failed = |error: rustix::io::Errno| Error::System { doing, source: error.into() };
    let mut room = interpreter.images.delta + IMAGE_GROWTH_BYTES;
    let mut allocated = 0;
    let end = monotonic_nanoseconds().saturating_add(IMAGE_LIMIT);
    for _ in 0..TRIES {
        let contents = room.saturating_sub(IMAGE_CONTENTS);
        let on_engine = &interpreter.images.on_engine;
        let max_on_engine = most.saturating_mul(MAX_ON_ENGINE);
        let mut draft = Draft::new("sandtimer-image", on_engine).map_err(failed)?;
        let files = Draft::new("sandtimer-files", on_engine).map_err(failed)?;
        let is_on_engine = draft.charge(contents, max_on_engine, account);
        let image = draft.file().map_err(Error::system(doing))?;
        let files_file = files.file().map_err(Error::system(doing))?;
        ftruncate(image, room).map_err(failed)?;
        fcntl_add_seals(image, SealFlags::GROW).map_err(failed)?;
        // Here, so that it is on the engine's account: it may outlive the origin. A short image is
        // allocated before the interpreter begins to write, since it inspects itself first; if not,
        // an interpreter that has room for it is not harmed.
        let allocate = || match contents {
            // The interpreter can then only report the length that it needs.
            0 => Ok(()),
            _ if !is_on_engine => Ok(()),
            _ => fallocate(image, FallocateFlags::empty(), IMAGE_CONTENTS, contents).map_err(failed),
        };
        if !is_on_engine && !interpreter.has_room_for(contents) {
            return Err(Error::NoBranch(
                "its earlier images have used up what is kept for them, and the next one does not fit into its memory limit; \
                 open another context"
                    .to_owned(),
            ));
        }
        let is_concurrent = room <= MAX_EARLY_IMAGE_BYTES && interpreter.has_room_for(room.saturating_mul(2));
        if !is_concurrent {
            allocate()?;
        }
        let inode = interpreter
            .images
            .base
            .as_ref()
            .map_or(Ok(0), |base| fstat(base).map(|stat| stat.st_ino))
            .map_err(failed)?;
        let processors = apart.then(|| interpreter.bind_elsewhere()).flatten();
        let nonce = ask(interpreter, processors, inode, shares, [image, files_file])?;
        if is_concurrent {
            allocate()?;
        }
        let made = answer(interpreter, nonce, end)?;
        let (length, is_whole) = match made {
            ImageResult::TooShort(length) if length > room && length <= most => {
                // What it touches in the meantime counts as well.
                room = length + IMAGE_GROWTH_BYTES;
                allocated += room;
                if allocated > MAX_IMAGE_BYTES + IMAGE_GROWTH_BYTES {
                    break;
                }
                continue;
            }
            ImageResult::TooShort(length) if length > most => {
                return Err(Error::NoBranch(format!(
                    "its image would have {} MiB, and may have {} MiB (its memory limit, or what an image may have at all)",
                    length >> 20,
                    most >> 20
                )));
            }
            ImageResult::Delta(length)
                if length <= room.min(MAX_DELTA_BYTES) && interpreter.images.base.is_some() =>
            {
                (length, false)
            }
            ImageResult::Whole(length) if length <= room => (length, true),
            _ => return Err(Error::NoBranch("its image has no size that can be right".to_owned())),
        };
        ftruncate(image, length).map_err(failed)?;
        let files = Arc::new(files.seal().map_err(Error::system(doing))?.file);
        let image = Arc::new(draft.seal().map_err(Error::system(doing))?);
        let own = Some(image.clone());
        let on_engine = interpreter.images.on_engine.clone();
        interpreter.images = match is_whole {
            true => Images { base: own, on_engine, ..Images::default() },
            false => {
                let base = interpreter.images.base.take();
                Images { base, last: own, delta: length, is_stale: false, on_engine }
            }
        };
        return Ok(WrittenImage { image, files, images: interpreter.images.clone() });
    }
    Err(Error::NoBranch("it grows while its image is written".to_owned()))
}

/// Asks the interpreter for its image, which may run on these processors from then on; what its
/// answer is known by.
fn ask(
    interpreter: &mut LiveInterpreter,
    processors: Option<Processors>,
    base: u64,
    shares: bool,
    files: [BorrowedFd<'_>; 2],
) -> Result<Nonce, Error> {
    interpreter.is_disturbed();
    let mut nonce = Nonce::default();
    renew(&mut nonce);
    let head = os::ProcessSetup { processors, ..os::ProcessSetup::default() };
    let request = image_request(nonce, base, shares);
    os::dispatch(interpreter.channel(), &head, &request, &files)
        .map_err(Error::system("cannot make an image of the interpreter"))?;
    Ok(nonce)
}

/// Receives the interpreter's reply about its image, before `end`.
fn answer(interpreter: &mut LiveInterpreter, nonce: Nonce, end: u64) -> Result<ImageResult, Error> {
    let doing = "cannot make an image of the interpreter";
    let failed = |reason: String| Error::System { doing, source: std::io::Error::other(reason) };
    while let Some(packet) = interpreter.next_packet(end).map_err(failed)? {
        match Frame::parse(&packet) {
            Frame::Image { nonce: reply_nonce, made } if reply_nonce == nonce => {
                return made.map_err(Error::NoBranch);
            }
            _ => {}
        }
    }
    Err(failed(format!("it took longer than {:?}", Duration::from_nanos(IMAGE_LIMIT))))
}

/// Children that were assigned as branches, and what ends them unless they take the image.
struct PendingBranches<'a> {
    source: &'a Arc<ChildPool>,
    run: Spec,
    opened: OpenedRun,
    settings: String,
    interpreters: Vec<LiveInterpreter>,
    /// Interpreters that have taken the image.
    became: Vec<LiveInterpreter>,
}

impl<'a> PendingBranches<'a> {
    fn open(source: &'a Arc<ChildPool>, spec: &ContextSpec) -> Result<Self, Error> {
        let run = run_of(source, spec);
        let opened = opened::open(&source.inner, &run)?;
        let settings = variables(spec, true).to_string();
        Ok(PendingBranches { source, run, opened, settings, interpreters: Vec::new(), became: Vec::new() })
    }

    /// Assigns a child as a branch, with the images that its own will be over. `here`: it is to
    /// begin on this thread's processor.
    ///
    /// # Errors
    /// `System` when it died while it waited.
    fn assign(&mut self, mut child: Child, over: Option<&Images>, here: bool) -> Result<(), Error> {
        let files = over.into_iter().flat_map(|images| [&images.base, &images.last]).flatten();
        let files: Vec<_> = files.map(AsFd::as_fd).collect();
        child.check(&self.run)?;
        child.become_context(&self.opened, self.settings.as_bytes(), &files, here)?;
        let parts = child.into_parts().ok_or(Error::Closed)?;
        self.interpreters.push(LiveInterpreter::new(self.source.inner.clone(), parts, None));
        Ok(())
    }

    /// Has the interpreters become the image before `end`, and ends those that do not. Their
    /// checkpoints are made later, while no caller waits for them.
    fn take(&mut self, written: &WrittenImage, end: u64) -> Result<(), Error> {
        let images = &written.images;
        let base = images.base.as_deref().filter(|_| images.last.is_some());
        let files: Vec<_> =
            [written.image.as_fd(), written.files.as_fd()].into_iter().chain(base.map(AsFd::as_fd)).collect();
        for interpreter in &mut self.interpreters {
            // What the origin has written is charged to it, not to the branches.
            let on_engine = EngineCharges::given([&images.base, &images.last]);
            interpreter.images = Images { on_engine, ..images.clone() };
            // An interpreter that has ended has reported why, or its end is found later.
            let _ = os::dispatch(interpreter.channel(), &os::ProcessSetup::default(), IMAGE, &files);
        }
        let (mut failed, mut result) = (Vec::new(), Ok(()));
        for mut interpreter in std::mem::take(&mut self.interpreters) {
            match taken(&mut interpreter, end) {
                Ok(()) => self.became.push(interpreter),
                Err(error) => {
                    failed.push(interpreter);
                    result = result.and(Err(error));
                }
            }
        }
        self.source.lock().stats.lost += failed.len() as u64;
        failed.into_iter().for_each(discard);
        result
    }
}

impl Drop for PendingBranches<'_> {
    fn drop(&mut self) {
        opened::close(&self.source.inner, self.opened.scope);
        self.interpreters.drain(..).chain(self.became.drain(..)).for_each(discard);
    }
}

/// Ends an interpreter that becomes no context.
fn discard(mut interpreter: LiveInterpreter) {
    let directory = interpreter.own_workspace.take();
    drop(interpreter);
    // What stays is removed with the directory that all of them are in.
    let _ = directory.map(|directory| remove_workspace(&directory));
}

/// Waits until it is what the image was of.
fn taken(interpreter: &mut LiveInterpreter, end: u64) -> Result<(), Error> {
    let failed = |reason: String| Error::System {
        doing: "an interpreter did not become the context's image",
        source: std::io::Error::other(reason),
    };
    while let Some(packet) = interpreter.next_packet(end).map_err(failed)? {
        match Frame::parse(&packet) {
            Frame::Started => {
                interpreter.ask_for_checkpoint();
                return Ok(());
            }
            Frame::Failed(reason) => return Err(failed(reason)),
            _ => {}
        }
    }
    Err(failed(format!("it took longer than {:?}", Duration::from_nanos(IMAGE_LIMIT))))
}
