//! The functions and methods that start one server.

use std::{error::Error, future::Future};

use rounds::Rounds;
use tokio_util::sync::CancellationToken;
pub use upstream::service::*;
use upstream::{ServerHandler, service as real, transport::IntoTransport};

/// What is served in place of what a test has made.
pub trait Wrap<R: ServiceRole>: Sized {
    type Wrapped: real::ServiceExt<R>;

    fn wrap(self) -> Self::Wrapped;
}

impl<H: ServerHandler> Wrap<RoleServer> for H {
    type Wrapped = Rounds<H>;

    fn wrap(self) -> Rounds<H> {
        super::count();
        super::builder(self).build().expect("the defaults fit together")
    }
}

impl<S: Service<RoleClient>> Wrap<RoleClient> for S {
    type Wrapped = S;

    fn wrap(self) -> S {
        self
    }
}

pub type RunningService<R, S> = real::RunningService<R, <S as Wrap<R>>::Wrapped>;

pub trait ServiceExt<R: ServiceRole>: Wrap<R> + Send {
    fn serve<T, E, A>(
        self,
        transport: T,
    ) -> impl Future<Output = Result<RunningService<R, Self>, R::InitializeError>> + Send
    where
        T: IntoTransport<R, E, A>,
        E: Error + Send + Sync + 'static,
    {
        real::ServiceExt::serve(self.wrap(), transport)
    }

    fn serve_with_ct<T, E, A>(
        self,
        transport: T,
        ct: CancellationToken,
    ) -> impl Future<Output = Result<RunningService<R, Self>, R::InitializeError>> + Send
    where
        T: IntoTransport<R, E, A>,
        E: Error + Send + Sync + 'static,
    {
        real::ServiceExt::serve_with_ct(self.wrap(), transport, ct)
    }
}

impl<R: ServiceRole, S: Wrap<R> + Send> ServiceExt<R> for S {}

pub async fn serve_server<S, T, E, A>(
    service: S,
    transport: T,
) -> Result<RunningService<RoleServer, S>, ServerInitializeError>
where
    S: ServerHandler,
    T: IntoTransport<RoleServer, E, A>,
    E: Error + Send + Sync + 'static,
{
    real::serve_server(service.wrap(), transport).await
}

pub async fn serve_server_with_ct<S, T, E, A>(
    service: S,
    transport: T,
    ct: CancellationToken,
) -> Result<RunningService<RoleServer, S>, ServerInitializeError>
where
    S: ServerHandler,
    T: IntoTransport<RoleServer, E, A>,
    E: Error + Send + Sync + 'static,
{
    real::serve_server_with_ct(service.wrap(), transport, ct).await
}

pub fn serve_directly<R, S, T, E, A>(service: S, transport: T, peer_info: Option<R::PeerInfo>) -> RunningService<R, S>
where
    R: ServiceRole<PeerNot: ProgressNotificationToken>,
    S: Wrap<R>,
    T: IntoTransport<R, E, A>,
    E: Error + Send + Sync + 'static,
{
    real::serve_directly(service.wrap(), transport, peer_info)
}

pub fn serve_directly_with_ct<R, S, T, E, A>(
    service: S,
    transport: T,
    peer_info: Option<R::PeerInfo>,
    ct: CancellationToken,
) -> RunningService<R, S>
where
    R: ServiceRole<PeerNot: ProgressNotificationToken>,
    S: Wrap<R>,
    T: IntoTransport<R, E, A>,
    E: Error + Send + Sync + 'static,
{
    real::serve_directly_with_ct(service.wrap(), transport, peer_info, ct)
}
