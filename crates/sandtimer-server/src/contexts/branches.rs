//! Contexts that are made from one: each is its owner's like every other, and takes a place of its own under the quota.

use std::sync::Arc;

use sandtimer::engine::BranchSpec;
use sandtimer::limits::Setting;
use sandtimer::model::LimitKind;

use super::live::{Begun, ContextFiles, Directories, IN_CONTEXTS, LiveContext, blocking};
use super::request::{BranchRequest, Language, idle_of};
use crate::Shared;
use crate::connection::awaited;
use crate::error::{Code, Refusal};
use crate::quota::Kind;
use crate::workspaces::Workspace;

/// Makes branches of a context when its turn has come. Dropped before that, it makes none.
pub(super) async fn make(
    app: Shared,
    origin: Arc<LiveContext>,
    request: BranchRequest,
) -> Result<Vec<Arc<LiveContext>>, Refusal> {
    if *app.closing.borrow() {
        return Err(Refusal::new(Code::ShuttingDown, "the server is ending and takes no more contexts"));
    }
    let kind = if origin.language() == Language::Bash { Kind::Sessions } else { Kind::Contexts };
    let places =
        (0..request.count).map(|_| app.places.take(&origin.owner, kind)).collect::<Result<Vec<_>, _>>()?;
    let share = IN_CONTEXTS.take(&origin.owner)?;
    let turn = origin.context.queue();
    let (is_awaited, _awaited) = awaited();
    let work = move || {
        // For as long as it keeps this thread, whether or not the caller is there.
        let _share = share;
        origin.touch();
        let shared = origin.named_workspace();
        let spec =
            BranchSpec { count: request.count, limits: request.whole, shares_workspace: shared.is_some() };
        // Before anything is made: from here on each is held.
        let used = |_: &_| shared.map(Workspace::enter).transpose();
        let used = places.iter().map(used).collect::<Result<Vec<_>, _>>()?;
        let made = origin.context.branch_unless(&spec, turn, &|| !is_awaited());
        origin.touch();
        let idle = match request.idle.get(LimitKind::Idle) {
            Setting::Inherit => origin.idle,
            _ => idle_of(&request.idle),
        };
        let each = request.each.or(&origin.each);
        let mut live = Vec::new();
        for (context, (place, using)) in made?.into_iter().zip(places.into_iter().zip(used)) {
            let own = || {
                let directory = context.workspace().map(ToOwned::to_owned);
                directory.map(|directory| Workspace::own(origin.owner.clone(), directory))
            };
            let missing = || Refusal::new(Code::Internal, "the context has no workspace");
            let workspace = shared.cloned().or_else(own).ok_or_else(missing)?;
            let begun = Begun {
                language: origin.language(),
                idle,
                each: each.clone(),
                warnings: origin.warnings.clone(),
            };
            let temporary = shared.and_then(|_| origin.temporary());
            let directories = Directories { files: ContextFiles::Workspace(workspace), using, temporary };
            let branch = LiveContext::new(origin.owner.clone(), begun, context, directories, place);
            app.contexts.note(&branch);
            app.contexts.add(branch.clone());
            live.push(branch);
        }
        Ok(live)
    };
    blocking(work).await?
}
