//! Requests that are answered at once.

use std::sync::Arc;

use serde_json::{Value, json};
use toolbay::{Bundle, CallQuery, Filter, LoadReport, LoadWarning, Session, View, discovery};

use crate::error::BridgeError;
use crate::host::OpenHost;
use crate::request::{CallsRequest, FilterRequest, Query, SessionRequest, ToolRequest};
use crate::{Answer, Bridge, call, number, plugin_id, policy, vendor_format};

impl Bridge {
    pub(crate) fn answer(&self, query: Query, payload: &str) -> Answer<Value> {
        Ok(match query {
            Query::Policy { policy } => policy::read(&policy)?.text.into(),
            Query::Session(request) => self.make_session(&request).into(),
            Query::SessionUsage { session } => {
                let session = self.session(session)?;
                json!({"calls": session.calls(), "cost_usd": session.cost_usd(), "id": session.id()})
            }
            Query::View { host, filter } => self.make_view(host, *filter)?.into(),
            Query::Tools { view } => tools(&self.view(view)?.1),
            Query::Definitions { vendor, view, strict } => {
                vendor_format::definitions(&vendor, &self.view(view)?.1, strict)?
            }
            Query::ParseCalls { vendor } => vendor_format::parse_calls(&vendor, payload)?,
            Query::ResultMessages { vendor } => vendor_format::result_messages(&vendor, payload)?,
            Query::Register { host, tools } => register(&*self.host(host)?, tools)?,
            Query::Unregister { host, tool } => {
                let open = self.host(host)?;
                let _runtime = open.runtime.handle().enter();
                open.host.unregister(&tool).into()
            }
            Query::Unload { host, plugin } => {
                let (open, plugin) = (self.host(host)?, plugin_id(&plugin)?);
                let _runtime = open.runtime.handle().enter();
                open.host.unload(&plugin).into()
            }
            Query::Problems { host } => problems(&*self.host(host)?),
            Query::Calls { host, query } => calls(&*self.host(host)?, query),
        })
    }

    fn make_session(&self, request: &SessionRequest) -> u64 {
        let session = match &request.name {
            Some(name) => Session::with_name(name),
            None => Session::with_random_key(),
        };
        let session = match &request.id {
            Some(id) => session.with_id(&**id),
            None => session,
        };
        let number = number::next();
        self.sessions.lock().insert(number, Arc::new(session.with_limits(request.limits())));
        number
    }

    fn make_view(&self, host: u64, request: FilterRequest) -> Answer<u64> {
        let open = self.host(host)?;
        let profile = match &request.profile {
            Some(name) => Some(open.host.policy().profile(name).cloned().ok_or_else(|| {
                BridgeError::argument(format!("the policy has no profile `{name}`: write [profile.{name}]"))
            })?),
            None => None,
        };
        let filter = Filter {
            allowed_tools: request.allowed_tools,
            allowed_plugins: request.allowed_plugins,
            allowed_toolsets: request.allowed_toolsets,
            allowed_tags: request.allowed_tags,
            allowed_mcp_servers: request.allowed_mcp_servers,
            allowed_mcp_tools: request.allowed_mcp_tools,
            exclude_tools: request.exclude_tools,
            exclude_tags: request.exclude_tags,
            lazy: request.lazy,
            toolcall_reason: request.toolcall_reason,
            profile,
        };
        // Checks of availability run as tasks of the host.
        let _runtime = open.runtime.handle().enter();
        let (number, view) = (number::next(), discovery::add_search_tools(open.host.view(filter)));
        self.views.lock().insert(number, (host, view));
        Ok(number)
    }
}

fn tools(view: &View) -> Value {
    let tool = |entry: &Arc<toolbay::ToolEntry>| {
        let def = &entry.def;
        json!({
            "name": def.name.as_str(), "title": def.title, "description": def.description,
            "input_schema": def.input_schema.value(),
            "output_schema": def.output_schema.as_ref().map(|schema| schema.value()),
            "source": def.source.label(),
        })
    };
    view.definitions().map(tool).collect()
}

fn register(open: &OpenHost, tools: Vec<ToolRequest>) -> Answer<Value> {
    let tools = tools.into_iter().map(call::tool_entry).collect::<Answer<Vec<_>>>()?;
    let _runtime = open.runtime.handle().enter();
    let done = open.host.register(Bundle { tools, reducers: Vec::new() });
    let done = done.map_err(|collision| BridgeError::argument(collision.to_string()))?;
    Ok(done.added.iter().map(|name| Value::from(&**name)).collect())
}

fn problems(open: &OpenHost) -> Value {
    let problem = |problem: &toolbay::LoadProblem| {
        json!({
            "file": problem.file.display().to_string(), "plugin": problem.plugin.as_ref().map(|id| id.as_str()),
            "message": problem.error.to_string(), "kept": problem.kept,
        })
    };
    open.host.problems().iter().map(problem).collect()
}

fn calls(open: &OpenHost, request: CallsRequest) -> Value {
    let CallsRequest { limit, tool, outcome, session_id } = request;
    let query = CallQuery { limit, tool, outcome, since: None, session_id };
    let call = |call: toolbay::core::audit::call_log::CallEntry| {
        json!({
            "number": call.number, "call_id": &*call.call_id, "tool": &*call.tool,
            "source": call.source.map(|source| source.label()), "session_id": call.session_id.as_deref(),
            "outcome": call.outcome, "cached": call.cached, "duration_us": call.duration_us,
            "waited_us": call.waited_us, "cost_usd": call.cost_usd,
        })
    };
    open.host.calls().calls(&query).into_iter().map(call).collect()
}

pub(crate) fn warnings(warnings: &[LoadWarning]) -> Value {
    warnings.iter().map(|warning| Value::from(&*warning.message)).collect()
}

/// What a reload of the policy changed.
pub(crate) fn report(report: &LoadReport) -> Value {
    let change = |change: &toolbay::PluginChange| json!({"plugin": change.plugin.as_str(), "change": change.kind.as_str()});
    let changes: Vec<Value> = report.changes.iter().map(change).collect();
    json!({"changes": changes, "warnings": warnings(&report.warnings), "restart": report.restart})
}
