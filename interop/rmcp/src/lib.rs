//! `rmcp` as its own tests see it here: the same crate, but every way to start a server puts the server inside a
//! [`Rounds`](rounds::Rounds) first. Clients are left alone.

pub use upstream::*;

pub use self::service::{ServiceExt, serve_server};

pub mod service {
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
            Rounds::new(self)
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

    pub fn serve_directly<R, S, T, E, A>(
        service: S,
        transport: T,
        peer_info: Option<R::PeerInfo>,
    ) -> RunningService<R, S>
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
}

pub mod transport {
    pub use upstream::transport::*;

    pub use self::streamable_http_server::StreamableHttpService;

    pub mod streamable_http_server {
        pub use upstream::transport::streamable_http_server::*;

        pub use self::tower::StreamableHttpService;

        pub mod tower {
            //! The service that makes a server for every request or session.

            use std::{
                fmt::Display,
                io,
                ops::Deref,
                sync::{Arc, Mutex},
                task::{Context, Poll},
            };

            use http::Request;
            use http_body::Body;
            use rounds::Rounds;
            use tower_service::Service;
            pub use upstream::transport::streamable_http_server::tower::*;
            use upstream::{
                ServerHandler,
                transport::streamable_http_server::{
                    SessionManager, session::local::LocalSessionManager, tower as real,
                },
            };

            pub struct StreamableHttpService<S, M = LocalSessionManager>(real::StreamableHttpService<Rounds<S>, M>);

            impl<S: ServerHandler, M: SessionManager> StreamableHttpService<S, M> {
                pub fn new(
                    factory: impl Fn() -> Result<S, io::Error> + Send + Sync + 'static,
                    sessions: Arc<M>,
                    config: StreamableHttpServerConfig,
                ) -> Self {
                    crate::count();
                    let first = Mutex::<Option<Rounds<S>>>::default();
                    let wrapped = move || {
                        let handler = factory()?;
                        let mut first = first.lock().expect("nothing panics while it is locked");
                        // A handler for each call of the factory, as without us, and one core for all of them.
                        let server = match &*first {
                            Some(first) => first.with_handler(handler),
                            None => first.insert(Rounds::new(handler)).clone(),
                        };
                        Ok(server)
                    };
                    Self(real::StreamableHttpService::new(wrapped, sessions, config))
                }
            }

            impl<S, M> Clone for StreamableHttpService<S, M> {
                fn clone(&self) -> Self {
                    Self(self.0.clone())
                }
            }

            impl<S, M> Deref for StreamableHttpService<S, M> {
                type Target = real::StreamableHttpService<Rounds<S>, M>;

                fn deref(&self) -> &Self::Target {
                    &self.0
                }
            }

            impl<B, S, M> Service<Request<B>> for StreamableHttpService<S, M>
            where
                B: Body<Data: Send, Error: Display> + Send + 'static,
                real::StreamableHttpService<Rounds<S>, M>: Service<Request<B>>,
            {
                type Response = <real::StreamableHttpService<Rounds<S>, M> as Service<Request<B>>>::Response;
                type Error = <real::StreamableHttpService<Rounds<S>, M> as Service<Request<B>>>::Error;
                type Future = <real::StreamableHttpService<Rounds<S>, M> as Service<Request<B>>>::Future;

                fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
                    self.0.poll_ready(context)
                }

                fn call(&mut self, request: Request<B>) -> Self::Future {
                    self.0.call(request)
                }
            }
        }
    }
}

/// What a client says that answers every question.
pub fn declare_everything() -> model::ClientConfig {
    #![allow(deprecated, reason = "sampling and roots can still be asked for")]
    let capabilities =
        model::ClientCapabilities::builder().enable_elicitation().enable_sampling().enable_roots().build();
    model::ClientConfig::new(capabilities, model::Implementation::from_build_env())
}

/// Counts a server that was wrapped: a byte each in the file that `RMCP_WRAPPED` names, as some of the tests start processes.
fn count() {
    use std::{env, fs::OpenOptions, io::Write};

    let file = env::var_os("RMCP_WRAPPED").expect("`cargo xtask rmcp` runs these tests");
    let mut file = OpenOptions::new().create(true).append(true).open(file).expect("the file can be written");
    file.write_all(b".").expect("the file can be written");
}
