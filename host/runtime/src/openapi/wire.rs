//! What sends the requests of a service: under the limits of the tool, as far as the profile of the call reaches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Semaphore;
use toolbay_core::call::CallContext;
use toolbay_core::call::fault::{Fault, FaultKind};
use toolbay_core::call::invoke::BoxFuture;
use toolbay_openapi::{Exchange, ExchangeError, Request, Response};
use toolbay_policy::OpenApi;
use toolbay_policy::capability::attachment::Access;
use toolbay_policy::limits::{Limit, Limits};

use crate::capability::http::{NetError, service};
use crate::capability::{Granted, GrantedUnder, Principal};

/// The wire of one service.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) section: Arc<OpenApi>,
    pub(super) granted: GrantedUnder,
    /// The limits of all its tools, and of those that have their own by qualified name.
    pub(super) limits: Arc<Limits>,
    pub(super) of_tools: BTreeMap<String, Arc<Limits>>,
    /// Places for its calls.
    pub(super) places: Semaphore,
}

impl Wire {
    fn limits(&self, tool: &str) -> &Arc<Limits> {
        self.of_tools.get(tool).unwrap_or(&self.limits)
    }

    fn under(&self, ctx: &CallContext) -> &Arc<Granted> {
        self.granted.under(ctx.profile.as_deref())
    }

    async fn send(
        &self,
        request: Request,
        ctx: &Arc<CallContext>,
        deadline: Instant,
    ) -> Result<Response, NetError> {
        let gone = |_| NetError::Transport("the host is shutting down".to_owned());
        let _place = self.places.acquire().await.map_err(gone)?;
        let limits = Arc::clone(self.limits(&ctx.tool));
        let most = limits.http_bytes;
        let plugin = self.section.name.clone();
        let granted = Some(Arc::clone(self.under(ctx)));
        let who = Principal { plugin, granted, limits, ctx: Some(Arc::clone(ctx)) };
        service::send(request, most, who, deadline).await
    }

    /// The time is up: the service's doing, and the policy's to change.
    fn late(&self, tool: &str) -> ExchangeError {
        let hit = self.limits(tool).hit(Limit::Timeout, &self.section.name);
        Fault::by_limit(FaultKind::Deadline, "the service did not answer in time", hit).into()
    }
}

impl Exchange for Wire {
    fn exchange<'a>(
        &'a self,
        request: Request,
        ctx: &'a Arc<CallContext>,
    ) -> BoxFuture<'a, Result<Response, ExchangeError>> {
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
                Ok(Err(NetError::Timeout)) | Err(_) => Err(self.late(&ctx.tool)),
                Ok(Err(NetError::Denied(why) | NetError::Address(why))) => Err(ExchangeError::Denied(why)),
                Ok(Err(NetError::Invalid(why) | NetError::Transport(why))) => Err(ExchangeError::Failed(why)),
            }
        })
    }

    fn attaches(&self, media: &str, ctx: &CallContext) -> bool {
        self.under(ctx).grants.attachments.iter().any(|rule| rule.takes(Access::Create, media))
    }
}
