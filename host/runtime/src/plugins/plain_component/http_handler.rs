//! Calls the HTTP handler of a plain component (`wasi:http/incoming-handler`) with a request that its manifest
//! describes. Nothing listens: the request exists only in this process.

use std::pin::pin;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{Either, select};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Request, Response};
use serde_json::Value;
use tokio::sync::oneshot;
use toolbay_core::tool::content::{ErrorCode, ToolError};
use toolbay_core::tool::manifest::{HandlerRequest, RequestTemplate};
use toolbay_policy::text::one_line;
use wasmtime::Store;
use wasmtime::component::{ComponentExportIndex, InstancePre, Resource};
use wasmtime_wasi_http::WasiHttpView as _;
use wasmtime_wasi_http::p2::bindings::http::types::Scheme;
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;
use wasmtime_wasi_http::p2::types::{HostIncomingRequest, HostResponseOutparam};

use super::{text, values};
use crate::engine::bindings::types::ToolResult;
use crate::engine::state::{GuestState, ProgramOutputTooLong};
use crate::plugins::tool_result::error_to_guest;

/// The interface of handlers. A later patch matches, too.
const HANDLER: &str = "wasi:http/incoming-handler@0.2.0";
/// Maximum length of a failed response's body in the error, in characters.
const MAX_BODY_CHARS: usize = 2000;
/// The host of the URL. A handler may read it and cannot reach it.
const AUTHORITY: &str = "localhost";

/// A linked component that handles HTTP.
pub(super) struct HttpHandler {
    pre: InstancePre<GuestState>,
    handle: ComponentExportIndex,
}

impl HttpHandler {
    /// The handler of a component, if it is one.
    pub(super) fn new(pre: &InstancePre<GuestState>) -> Option<Self> {
        let component = pre.component();
        let interface = component.get_export_index(None, HANDLER)?;
        let handle = component.get_export_index(Some(&interface), "handle")?;
        Some(Self { pre: pre.clone(), handle })
    }

    /// Handles one request.
    pub(super) async fn call(
        &self,
        store: &mut Store<GuestState>,
        template: &RequestTemplate,
        args: &Value,
    ) -> wasmtime::Result<ToolResult> {
        let request = values::arguments_object(args).and_then(|args| template.fill(args)).and_then(request);
        let request = match request {
            Ok(request) => request,
            Err(refused) => return Ok(Err(error_to_guest(refused))),
        };
        let most = store.data().max_program_output();
        let (sender, receiver) = oneshot::channel();
        let instance = self.pre.instantiate_async(&mut *store).await?;
        let request = store.data_mut().http().new_incoming_request(Scheme::Http, request)?;
        let response = store.data_mut().http().new_response_outparam(sender)?;
        let handle = instance
            .get_typed_func::<(Resource<HostIncomingRequest>, Resource<HostResponseOutparam>), ()>(
                &mut *store,
                self.handle,
            )?;
        // The guest writes the body while the host reads it. What it wrote before it ended can be read in one poll.
        let run = pin!(handle.call_async(store, (request, response)));
        let read = pin!(tokio::task::unconstrained(read_response(receiver, most)));
        let response = match select(run, read).await {
            Either::Left((ended, read)) => {
                ended?;
                let unfinished = || Ok(Err("the handler ended before its response was complete".to_owned()));
                read.now_or_never().unwrap_or_else(unfinished)?
            }
            Either::Right((response, run)) => {
                let response = response?;
                run.await?;
                response
            }
        };
        Ok(match response {
            Ok(response) => tool_result(template, response),
            Err(problem) => Err(error_to_guest(failure(&problem, None))),
        })
    }
}

/// Reads a response. The inner error is the handler's own.
async fn read_response(
    receiver: oneshot::Receiver<Result<Response<HyperOutgoingBody>, impl std::fmt::Debug>>,
    most: usize,
) -> wasmtime::Result<Result<Response<String>, String>> {
    let response = match receiver.await {
        Ok(Ok(response)) => response,
        Ok(Err(code)) => return Ok(Err(format!("the handler failed: {code:?}"))),
        Err(_dropped) => return Ok(Err("the handler sent no response".to_owned())),
    };
    let (parts, body) = response.into_parts();
    let body = match Limited::new(body, most).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            return Err(ProgramOutputTooLong.into());
        }
        Err(error) => return Ok(Err(format!("the handler did not finish its response: {error}"))),
    };
    Ok(Ok(Response::from_parts(parts, String::from_utf8_lossy(&body).into_owned())))
}

/// A response as the result of a tool.
fn tool_result(template: &RequestTemplate, response: Response<String>) -> ToolResult {
    let (parts, body) = response.into_parts();
    if parts.status.is_success() {
        return Ok(text::result_from_stdout(body, template.returns_json()));
    }
    let words = if body.trim().is_empty() { "it sent no text" } else { body.trim() };
    let words: String = words.chars().take(MAX_BODY_CHARS).collect();
    let status = parts.status.as_u16();
    let problem = format!("the handler answered with status {status}: {words}");
    Err(error_to_guest(failure(&problem, Some(status))))
}

fn failure(problem: &str, status: Option<u16>) -> ToolError {
    let error = ToolError::new(ErrorCode::ExecutionFailed, problem);
    match status {
        Some(status) => error.with_subject(format!("http-status-{status}")),
        None => error,
    }
}

/// Builds the request.
fn request(filled: HandlerRequest) -> Result<Request<Full<Bytes>>, ToolError> {
    let mut request = Request::builder()
        .method(filled.method.as_str())
        .uri(format!("http://{AUTHORITY}{}", filled.path))
        .header("content-length", filled.body.len());
    for (name, value) in &filled.headers {
        request = request.header(name, value);
    }
    request.body(Full::new(Bytes::from(filled.body))).map_err(|error| {
        let problem = one_line(&error.to_string(), 200);
        ToolError::new(ErrorCode::InputInvalid, format!("the arguments make no request: {problem}"))
    })
}
