//! Sends the requests of a service within the limits of the tool and the profile of the call.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Semaphore;
use toolbay_capabilities::http::{NetError, service};
use toolbay_capabilities::{Grantee, GrantsByProfile, ResolvedGrants};
use toolbay_core::call::CallContext;
use toolbay_core::call::invoke::BoxFuture;
use toolbay_core::call::service_request::{ServiceRequest, ServiceResponse};
use toolbay_core::tool::fault::{Fault, FaultKind};
use toolbay_openapi::{ExchangeError, HttpExchange};
use toolbay_policy::OpenApiService;
use toolbay_policy::capability::attachment::AttachmentAccess;
use toolbay_policy::limits::{CallLimits, Limit};

/// Sends the requests of one service.
#[derive(Debug)]
pub(super) struct ServiceExchange {
    pub(super) section: Arc<OpenApiService>,
    pub(super) granted: GrantsByProfile,
    /// The default limits of its tools; `tool_limits` has exceptions by qualified name.
    pub(super) limits: Arc<CallLimits>,
    pub(super) tool_limits: BTreeMap<String, Arc<CallLimits>>,
    /// Limits the parallel calls.
    pub(super) call_permits: Semaphore,
}

impl ServiceExchange {
    fn limits(&self, tool: &str) -> &Arc<CallLimits> {
        self.tool_limits.get(tool).unwrap_or(&self.limits)
    }

    fn grants_for(&self, ctx: &CallContext) -> &Arc<ResolvedGrants> {
        self.granted.for_profile(ctx.profile.as_deref())
    }

    async fn send(
        &self,
        request: ServiceRequest,
        ctx: &Arc<CallContext>,
        deadline: Instant,
    ) -> Result<ServiceResponse, NetError> {
        let shutting_down = |_| NetError::Transport("the host is shutting down".to_owned());
        let _permit = self.call_permits.acquire().await.map_err(shutting_down)?;
        let limits = Arc::clone(self.limits(&ctx.tool));
        let max = limits.http_bytes;
        let plugin = self.section.name.clone();
        let granted = Some(Arc::clone(self.grants_for(ctx)));
        let who = Grantee { plugin, granted, limits, ctx: Some(Arc::clone(ctx)), hint: None };
        service::send(request, max, who, deadline).await
    }

    /// The service did not answer within `timeout`.
    fn timeout_error(&self, tool: &str) -> ExchangeError {
        let hit = self.limits(tool).hit(Limit::Timeout, &self.section.name);
        Fault::by_limit(FaultKind::Deadline, "the service did not answer in time", hit).into()
    }
}

impl HttpExchange for ServiceExchange {
    fn send<'a>(
        &'a self,
        request: ServiceRequest,
        ctx: &'a Arc<CallContext>,
    ) -> BoxFuture<'a, Result<ServiceResponse, ExchangeError>> {
        Box::pin(async move {
            let time = self.limits(&ctx.tool).timeout;
            let sent = self.send(request, ctx, Instant::now() + time);
            let answer = tokio::select! {
                biased;
                () = ctx.cancel().cancelled() => {
                    return Err(Fault::new(FaultKind::Cancelled, "the call was cancelled").into());
                }
                answer = tokio::time::timeout(time, sent) => answer,
            };
            match answer {
                Ok(Ok(response)) => Ok(response),
                Ok(Err(NetError::Timeout)) | Err(_) => Err(self.timeout_error(&ctx.tool)),
                Ok(Err(NetError::Denied(why))) => Err(ExchangeError::Denied(why)),
                Ok(Err(NetError::Address(why))) => Err(ExchangeError::Denied(why.text)),
                Ok(Err(NetError::Invalid(why) | NetError::Transport(why))) => Err(ExchangeError::Failed(why)),
            }
        })
    }

    fn may_attach(&self, media: &str, ctx: &CallContext) -> bool {
        self.grants_for(ctx)
            .grants
            .attachments
            .iter()
            .any(|rule| rule.matches(AttachmentAccess::Create, media))
    }
}
