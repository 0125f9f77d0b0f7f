//! A connection to Redis that can be cut and restored.

use std::path::PathBuf;

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, UnixStream},
    sync::watch,
};

/// Forwards everything to Redis and back. While it is cut, nothing passes and neither end is told. When it is restored,
/// earlier connections are closed.
pub(crate) struct Cable {
    pub(crate) url: String,
    is_cut: watch::Sender<bool>,
}

impl Cable {
    pub(crate) async fn to(socket: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}/", listener.local_addr().unwrap());
        let (is_cut, cut) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((mut here, _)) = listener.accept().await {
                let (socket, mut cut) = (socket.clone(), cut.clone());
                tokio::spawn(async move {
                    if *cut.borrow_and_update() {
                        return becomes(&mut cut, false).await;
                    }
                    let mut there = UnixStream::connect(socket).await.unwrap();
                    tokio::select! {
                        _ = copy_bidirectional(&mut here, &mut there) => return,
                        () = becomes(&mut cut, true) => {}
                    }
                    // Both ends stay connected, and receive nothing.
                    becomes(&mut cut, false).await;
                });
            }
        });
        Self { url, is_cut }
    }

    pub(crate) fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    pub(crate) fn mend(&self) {
        self.is_cut.send_replace(false);
    }
}

async fn becomes(cut: &mut watch::Receiver<bool>, wanted: bool) {
    // If the receiver is gone, the test has ended.
    let _ = cut.wait_for(|cut| *cut == wanted).await;
}
