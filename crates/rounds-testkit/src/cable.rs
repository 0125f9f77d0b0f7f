//! A connection to a store that can be cut, restored, delayed and led to another store.

use std::{
    net::SocketAddr,
    path::PathBuf,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UnixStream},
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

/// A TCP proxy in front of the socket of a store.
#[derive(Clone)]
pub struct Cable {
    address: SocketAddr,
    state: Arc<State>,
}

struct State {
    leads_to: Mutex<PathBuf>,
    is_cut: watch::Sender<bool>,
    /// Number of times that the open connections were stalled.
    stalls: watch::Sender<usize>,
    /// Whether the next reply breaks its connection instead of passing.
    loses: AtomicBool,
    /// In milliseconds.
    delay: AtomicU64,
    /// Number of connections that were opened so far.
    opened: AtomicUsize,
}

impl Cable {
    /// A cable to the socket of a store.
    pub async fn to(socket: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            leads_to: Mutex::new(socket),
            is_cut: watch::Sender::new(false),
            stalls: watch::Sender::new(0),
            loses: AtomicBool::new(false),
            delay: AtomicU64::new(0),
            opened: AtomicUsize::new(0),
        });
        let cable = Self { address, state: state.clone() };
        tokio::spawn(async move {
            while let Ok((here, _)) = listener.accept().await {
                state.opened.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(state.clone().carry(here));
            }
        });
        cable
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the Redis at its end.
    pub fn redis_url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// Lets nothing pass from now on, on open connections and on new ones. Neither end notices.
    pub fn cut(&self) {
        self.state.is_cut.send_replace(true);
    }

    /// Lets new connections pass again after [`cut`](Self::cut), and closes those that were open.
    pub fn mend(&self) {
        self.state.is_cut.send_replace(false);
    }

    /// Lets nothing pass any more on the connections that are open now. Neither end notices.
    pub fn stall(&self) {
        self.state.stalls.send_modify(|stalls| *stalls += 1);
    }

    /// Connects new clients to another socket, as when a host name gets a new address.
    pub fn lead_to(&self, socket: PathBuf) {
        *self.state.leads_to.lock().unwrap() = socket;
    }

    /// Delays every reply by this time, and so makes it the time of a round trip. Opening a connection takes the same time.
    pub fn delay(&self, round_trip: Duration) {
        let millis = round_trip.as_millis().try_into().unwrap();
        self.state.delay.store(millis, Ordering::SeqCst);
    }

    /// Breaks the connection on which the next reply arrives, and loses the reply.
    pub fn lose_the_next_reply(&self) {
        self.state.loses.store(true, Ordering::SeqCst);
    }

    /// Whether the reply that [`lose_the_next_reply`](Self::lose_the_next_reply) waits for has not arrived yet.
    pub fn will_lose_a_reply(&self) -> bool {
        self.state.loses.load(Ordering::SeqCst)
    }

    /// Number of connections that clients have opened so far.
    pub fn opened(&self) -> usize {
        self.state.opened.load(Ordering::SeqCst)
    }
}

impl State {
    async fn carry(self: Arc<Self>, here: TcpStream) {
        let (mut cut, mut stalls) = (self.is_cut.subscribe(), self.stalls.subscribe());
        let before = *stalls.borrow_and_update();
        if *cut.borrow_and_update() {
            return becomes(&mut cut, |cut| !cut).await;
        }
        let socket = self.leads_to.lock().unwrap().clone();
        // A store that is away refuses the connection.
        let Ok(there) = UnixStream::connect(socket).await else { return };
        let (here_reads, here_writes) = here.into_split();
        let (there_reads, there_writes) = there.into_split();
        let (requests, replies) = (self.clone(), self.clone());
        let never = || Duration::ZERO;
        let time = move || Duration::from_millis(replies.delay.load(Ordering::SeqCst));
        let begun = Instant::now() + time();
        // Kept until the end: dropping them closes the connection, which both ends would notice.
        let mut sending = pin!(pass(here_reads, there_writes, begun, never, || true));
        let may_pass = || !requests.loses.swap(false, Ordering::SeqCst);
        let mut receiving = pin!(pass(there_reads, here_writes, begun, time, may_pass));
        tokio::select! {
            // A cut comes before everything that arrives after it.
            biased;
            () = becomes(&mut cut, |cut| cut) => {}
            () = becomes(&mut stalls, |stalls| stalls > before) => std::future::pending().await,
            () = &mut sending => return,
            () = &mut receiving => return,
        }
        // Both ends stay connected, and receive nothing.
        becomes(&mut cut, |cut| !cut).await;
    }
}

/// Passes what one end writes to the other, each piece after the delay of its time, until an end is closed or a piece may
/// not pass.
async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    begun: Instant,
    delay: impl Fn() -> Duration,
    may_pass: impl Fn() -> bool,
) {
    let (pieces, mut delayed) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let read = async move {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            if !may_pass() || pieces.send((Instant::now() + delay(), buffer[..length].to_vec())).is_err() {
                return;
            }
        }
        // What was read before the end still passes.
        drop(pieces);
        std::future::pending::<()>().await;
    };
    let write = async {
        sleep_until(begun).await;
        while let Some((moment, piece)) = delayed.recv().await {
            sleep_until(moment).await;
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = read => {}
        () = write => {}
    }
}

async fn becomes<T: Copy>(state: &mut watch::Receiver<T>, wanted: impl Fn(T) -> bool) {
    // If the sender is gone, the test has ended.
    let _ = state.wait_for(|state| wanted(*state)).await;
}
