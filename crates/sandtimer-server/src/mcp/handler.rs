//! What the protocol asks, given to a tool.

use std::sync::{Arc, OnceLock};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CreateTaskResult, DiscoverResult,
    GetTaskParams, GetTaskResult, Implementation, InitializeRequestParams, InitializeResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerCapabilities, ServerConfig,
    Tool, UpdateTaskParams,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio::sync::Semaphore;

use super::call::ToolCall;
use super::conversation::{Conversation, ListedNames, OwnerState};
use super::render::{rejection_answer, tool_result};
use super::tools::{self, nearest};
use super::{polled_task, resources, session_place};

const INSTRUCTIONS: &str = "Runs shell commands and code in sandboxes, under limits that hold. /workspace is yours and \
    is kept between calls. A call waits at most 45 s and then answers STILL RUNNING: the run continues under its limits; read its output with read_output, wait for it with wait, end it with kill. wait_ms is how long the call waits; timeout_ms is when the run is ended; without it the run is not ended by time. The first line of an answer is STILL RUNNING, EXITED n or STOPPED BY and \
    what stopped it.";

/// Calls under way on one connection of lines, or in one session over HTTP; more are refused. A
/// request over HTTP without a session has a handler of its own, and one call: connections bound
/// those.
const MAX_CALLS: usize = 64;

/// One conversation's, or, over HTTP without a session, one request's.
#[derive(Debug)]
pub(crate) struct Handler {
    owner: Arc<OwnerState>,
    own: OnceLock<Conversation>,
    calls: Semaphore,
}

impl Handler {
    pub fn new(owner: Arc<OwnerState>) -> Self {
        Handler { owner, own: OnceLock::new(), calls: Semaphore::new(MAX_CALLS) }
    }

    pub fn of(conversation: Conversation) -> Self {
        let owner = conversation.owner.clone();
        Handler { owner, own: OnceLock::from(conversation), calls: Semaphore::new(MAX_CALLS) }
    }

    /// Fails if a request asks for another place than it has.
    fn check_place(&self, context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
        session_place::check(self.own.get(), &context.extensions)
    }

    fn conversation(&self) -> Conversation {
        self.own.get().cloned().unwrap_or_else(|| Conversation::common(self.owner.clone()))
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_resources().enable_tasks().build();
        let about = Implementation::new("sandtimer", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities).with_server_info(about).with_instructions(INSTRUCTIONS)
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        // Only the client that opens a session sends this.
        if self.own.get().is_none() {
            let conversation = session_place::open(&self.owner, &context.extensions).await?;
            self.own.get_or_init(|| conversation);
        }
        context.peer.set_peer_info(request.clone());
        self.negotiate_initialize(&request)
    }

    /// A client that gets an error here opens a session, and so gets what it asks for.
    async fn discover(&self, context: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        self.check_place(&context)?;
        Ok(DiscoverResult::from_server_info(self.supported_protocol_versions().into_owned(), self.get_info()))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.check_place(&context)?;
        let conversation = self.conversation();
        let names = ListedNames::of(&context.extensions).unwrap_or_else(|| conversation.tool_names());
        let listed = tools::listed(conversation.estimates(), names, conversation.has_network());
        Ok(ListToolsResult::with_all_items(listed))
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let run = polled_task::find(&self.owner, &request.task_id)?;
        Ok(GetTaskResult::new(polled_task::task_status(&run).await?))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        // None ever asks for anything.
        polled_task::find(&self.owner, &request.task_id).map(drop)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        polled_task::find(&self.owner, &request.task_id)?.cancel("the client cancelled its task");
        Ok(())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(resources::listed(&self.owner)))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(ReadResourceResult::new(vec![resources::read(&self.owner, &request.uri).await?]).into())
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let conversation = self.conversation();
        tools::find(name, conversation.estimates()).map(|tool| tool.described(conversation.has_network()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.check_place(&context)?;
        let estimates = self.conversation().estimates();
        let Some(tool) = tools::find(&request.name, estimates) else {
            let given = tools::shortened(&request.name);
            let message = match nearest(&request.name, tools::names(estimates)) {
                Some(name) => format!("there is no tool `{given}`; the nearest is `{name}`"),
                None => format!("there is no tool `{given}`; tools/list has all of them"),
            };
            return Err(ErrorData::invalid_params(message, None));
        };
        let Ok(_turn) = self.calls.try_acquire() else {
            let message =
                format!("{MAX_CALLS} calls of this connection are under way; wait for one to be answered");
            return Err(ErrorData::invalid_request(message, None));
        };
        // Until the call has finished: what was reserved for its message is given back before, as a
        // rule.
        let bytes: usize =
            request.arguments.iter().flatten().filter_map(|(_, value)| value.as_str()).map(str::len).sum();
        let _reserved = match self
            .owner
            .service
            .contexts
            .runs
            .core
            .messages
            .requests
            .reserve_long(&self.owner.owner, bytes)
        {
            Ok(reserved) => reserved,
            Err(refused) => return Ok(tool_result(Err(rejection_answer(&refused))).into()),
        };
        let takes_tasks = context.client_capabilities().is_some_and(|client| client.supports_tasks());
        let takes_tasks = takes_tasks && tool.waits(request.arguments.as_ref());
        let call = ToolCall::new(self.conversation(), context);
        let answered = match tool.fields(request.arguments.unwrap_or_default()) {
            Ok(fields) => tools::act(tool, &call, fields).await,
            Err(rejection) => Err(rejection),
        };
        let mut answered = answered.map_err(|refused| rejection_answer(&refused));
        if let (Ok(answer), Some(check)) = (&mut answered, call.conversation.budget_notice()) {
            answer.add_budget_notice(&check);
        }
        if let Ok(answer) = &mut answered {
            answer.add_notes(call.notes());
        }
        if let Ok(answer) = &answered
            && takes_tasks
            && let Some(run) = answer.running_run_id().and_then(|id| polled_task::find(&self.owner, id).ok())
        {
            return Ok(CreateTaskResult::new(polled_task::handle(&run)).into());
        }
        Ok(tool_result(answered).into())
    }
}
