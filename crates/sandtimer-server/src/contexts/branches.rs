//! Contexts that are made from one: each is its owner's like every other, and takes a place of its
//! own under the quota.

use std::sync::Arc;

use sandtimer::engine::BranchSpec;
use sandtimer::limits::Setting;
use sandtimer::model::LimitKind;

use super::context::{ContextFiles, ContextStart, Directories, LiveContext};

use super::request::{BranchRequest, ContextLanguage, idle_of};
use super::service::{CONTEXT_SHARES, ContextService, blocking};
use crate::connection::awaited;
use crate::error::{ApiRejection, Code};
use crate::quota::QuotaKind;
use crate::workspaces::Workspace;

/// Makes branches of a context when its turn has come. Dropped before that, it makes none.
pub(super) async fn make(
    service: Arc<ContextService>,
    origin: Arc<LiveContext>,
    request: BranchRequest,
) -> Result<Vec<Arc<LiveContext>>, ApiRejection> {
    if *service.runs.core.closing.borrow() {
        return Err(ApiRejection::new(Code::ShuttingDown, "the server is ending and takes no more contexts"));
    }
    let kind =
        if origin.language() == ContextLanguage::Bash { QuotaKind::Sessions } else { QuotaKind::Contexts };
    let quota_permits = (0..request.count)
        .map(|_| service.runs.core.quotas.take(&origin.owner, kind))
        .collect::<Result<Vec<_>, _>>()?;
    let share = CONTEXT_SHARES.take(&origin.owner)?;
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
        let used = quota_permits.iter().map(used).collect::<Result<Vec<_>, _>>()?;
        let made = origin.context.branch_unless(&spec, turn, &|| !is_awaited());
        origin.touch();
        let idle = match request.idle.get(LimitKind::Idle) {
            Setting::Inherit => origin.idle,
            _ => idle_of(&request.idle),
        };
        let each = request.each.or(&origin.each);
        let mut live = Vec::new();
        for (context, (quota_permit, using)) in made?.into_iter().zip(quota_permits.into_iter().zip(used)) {
            let own = || {
                let directory = context.workspace().map(ToOwned::to_owned);
                directory.map(|directory| Workspace::own(origin.owner.clone(), directory))
            };
            let missing = || ApiRejection::new(Code::Internal, "the context has no workspace");
            let workspace = shared.cloned().or_else(own).ok_or_else(missing)?;
            let begun = ContextStart {
                language: origin.language(),
                idle,
                each: each.clone(),
                warnings: origin.warnings.clone(),
            };
            let temporary = shared.and_then(|_| origin.temporary());
            let directories = Directories { files: ContextFiles::Workspace(workspace), using, temporary };
            let branch = LiveContext::new(origin.owner.clone(), begun, context, directories, quota_permit);
            service.note(&branch);
            service.add(branch.clone());
            live.push(branch);
        }
        Ok(live)
    };
    blocking(work).await?
}
