//! Calls the HTTP handler of a plain component (`wasi:http/incoming-handler` of WASI 0.2, `wasi:http/handler` of WASI
//! 0.3) with a request that its manifest describes. Nothing listens: the request exists only in this process.

use std::pin::pin;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{Either, select};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Body;
use hyper::{Request, Response};
use serde_json::Value;
use tokio::sync::oneshot;
use toolbay_capabilities::bindings::types::ToolResult;
use toolbay_capabilities::invoke::error_to_guest;
use toolbay_capabilities::state::GuestState;
use toolbay_core::tool::content::{ErrorCode, ToolError};
use toolbay_core::tool::manifest::{HandlerRequest, RequestTemplate};
use toolbay_policy::excerpt::one_line;
use toolbay_sandbox::instance::ProgramOutputTooLong;
use wasmtime::Store;
use wasmtime::component::{ComponentExportIndex, Instance, InstancePre, Resource};
use wasmtime_wasi_http::p2::bindings::http::types::Scheme;
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;
use wasmtime_wasi_http::p2::types::{HostIncomingRequest, HostResponseOutparam};
use wasmtime_wasi_http::{WasiHttpCtxView, WasiHttpView as _, p3};

use super::{text, values};

/// The interfaces of handlers. A later patch matches, too.
const INTERFACES: [(HandlerInterface, &str); 2] = [
    (HandlerInterface::IncomingHandler, "wasi:http/incoming-handler@0.2.0"),
    (HandlerInterface::Handler, "wasi:http/handler@0.3.0"),
];
/// Maximum length of a failed response's body in the error, in characters.
const MAX_BODY_CHARS: usize = 2000;
/// The host of the URL. A handler may read it and cannot reach it.
const AUTHORITY: &str = "localhost";

/// A linked component that handles HTTP.
pub(super) struct HttpHandler {
    pre: InstancePre<GuestState>,
    interface: HandlerInterface,
    handle: ComponentExportIndex,
}

/// The interface that a handler exports.
#[derive(Debug, Clone, Copy)]
enum HandlerInterface {
    /// Of WASI 0.2. The function sets the response while it runs.
    IncomingHandler,
    /// Of WASI 0.3. The asynchronous function returns the response; its task then writes the body.
    Handler,
}

/// A response, or the handler's own error.
type HandlerAnswer = Result<Response<String>, String>;

impl HttpHandler {
    /// The handler of a component, if it is one.
    pub(super) fn new(pre: &InstancePre<GuestState>) -> Option<Self> {
        let component = pre.component();
        let (interface, exported) = INTERFACES
            .into_iter()
            .find_map(|(interface, name)| Some((interface, component.get_export_index(None, name)?)))?;
        let handle = component.get_export_index(Some(&exported), "handle")?;
        Some(Self { pre: pre.clone(), interface, handle })
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
        let instance = self.pre.instantiate_async(&mut *store).await?;
        let answer = match self.interface {
            HandlerInterface::IncomingHandler => {
                self.call_incoming_handler(store, &instance, request).await?
            }
            HandlerInterface::Handler => self.call_handler(store, &instance, request).await?,
        };
        Ok(match answer {
            Ok(response) => tool_result(template, response),
            Err(problem) => Err(error_to_guest(failure(&problem, None))),
        })
    }

    async fn call_incoming_handler(
        &self,
        store: &mut Store<GuestState>,
        instance: &Instance,
        request: Request<Full<Bytes>>,
    ) -> wasmtime::Result<HandlerAnswer> {
        let max = store.data().max_program_output();
        let (sender, receiver) = oneshot::channel();
        let request = store.data_mut().http().new_incoming_request(Scheme::Http, request)?;
        let response = store.data_mut().http().new_response_outparam(sender)?;
        let handle = instance
            .get_typed_func::<(Resource<HostIncomingRequest>, Resource<HostResponseOutparam>), ()>(
                &mut *store,
                self.handle,
            )?;
        // The guest writes the body while the host reads it. What it wrote before it ended can be read in one poll.
        let run = pin!(handle.call_async(store, (request, response)));
        let read = pin!(tokio::task::unconstrained(receive_response(receiver, max)));
        match select(run, read).await {
            Either::Left((ended, read)) => {
                ended?;
                let unfinished = || Ok(Err("the handler ended before its response was complete".to_owned()));
                read.now_or_never().unwrap_or_else(unfinished)
            }
            Either::Right((response, run)) => {
                let response = response?;
                run.await?;
                Ok(response)
            }
        }
    }

    async fn call_handler(
        &self,
        store: &mut Store<GuestState>,
        instance: &Instance,
        request: Request<Full<Bytes>>,
    ) -> wasmtime::Result<HandlerAnswer> {
        type Answer = Result<Resource<p3::Response>, p3::bindings::http::types::ErrorCode>;
        let max = store.data().max_program_output();
        let WasiHttpCtxView { table, hooks, .. } = store.data_mut().http();
        let (request, _sent) = p3::Request::from_http(hooks, request);
        let request = table.push(request)?;
        let handle =
            instance.get_typed_func::<(Resource<p3::Request>,), (Answer,)>(&mut *store, self.handle)?;
        // The task writes the body while the host reads it. Whatever it does afterwards ends with the store.
        let answer = store.run_concurrent(async |accessor| {
            let response = match handle.call_concurrent(accessor, (request,)).await? {
                (Ok(response),) => response,
                (Err(code),) => return Ok(Err(handler_failed(&code))),
            };
            let response = accessor.with(|mut access| {
                let response = access.data_mut().http().table.delete(response)?;
                response.into_http(access, async { Ok(()) })
            })?;
            read_response(response, max).await
        });
        answer.await?
    }
}

fn handler_failed(code: &impl std::fmt::Debug) -> String {
    format!("the handler failed: {code:?}")
}

/// Waits for a response and reads it.
async fn receive_response(
    receiver: oneshot::Receiver<Result<Response<HyperOutgoingBody>, impl std::fmt::Debug>>,
    max: usize,
) -> wasmtime::Result<HandlerAnswer> {
    match receiver.await {
        Ok(Ok(response)) => read_response(response, max).await,
        Ok(Err(code)) => Ok(Err(handler_failed(&code))),
        Err(_dropped) => Ok(Err("the handler sent no response".to_owned())),
    }
}

/// Reads a response with a body of at most `max` bytes.
async fn read_response<B>(response: Response<B>, max: usize) -> wasmtime::Result<HandlerAnswer>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (parts, body) = response.into_parts();
    let body = match Limited::new(body, max).collect().await {
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
