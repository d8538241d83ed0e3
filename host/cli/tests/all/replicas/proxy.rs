//! A TCP proxy in front of NATS, for partitions and slow networks: it can hold back what is sent without closing a connection.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A proxy. Its threads end with the test program.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    line: Arc<Line>,
}

/// What happens to the bytes on their way.
#[derive(Default)]
struct Line {
    is_cut: AtomicBool,
    delay_ms: AtomicU64,
}

impl Proxy {
    /// A proxy to a port of this machine.
    pub(crate) fn start(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let line = Arc::<Line>::default();
        let shared = Arc::clone(&line);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let line = Arc::clone(&shared);
                    std::thread::spawn(move || forward(from, to, &line));
                }
            }
        });
        Self { port, line }
    }

    /// Holds back what is sent from now on, or forwards it.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.line.is_cut.store(is_cut, Ordering::SeqCst);
    }

    /// Forwards each message so much later, in both directions.
    pub(crate) fn delay(&self, delay: Duration) {
        self.line.delay_ms.store(delay.as_millis().try_into().unwrap(), Ordering::SeqCst);
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, line: &Line) {
    let mut buffer = [0; 16 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        std::thread::sleep(Duration::from_millis(line.delay_ms.load(Ordering::SeqCst)));
        while line.is_cut.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if to.write_all(&buffer[..read]).is_err() {
            return;
        }
    }
}
