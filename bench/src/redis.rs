//! A Redis for the benchmark, without persistence, which is stopped when the benchmark ends.

use std::{
    error::Error,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

pub(crate) struct Redis {
    directory: PathBuf,
    process: Child,
}

impl Redis {
    pub(crate) fn start() -> Result<Self, Box<dyn Error>> {
        let directory = std::env::temp_dir().join(format!("rounds-bench-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let socket = directory.join("redis.sock");
        let process = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start redis-server ({error}): `cargo xtask redis` installs it"))?;
        let redis = Self { directory, process };
        let start = Instant::now();
        while !socket.exists() {
            if start.elapsed() > Duration::from_secs(10) {
                return Err("redis-server did not start within ten seconds".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(redis)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}", self.directory.join("redis.sock").display())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
