//! The frames of a WebSocket whose content is read by whoever has the room for it.
//!
//! A reader of whole messages has a buffer of its own, which it zeroes before each read, and a value for each message. All that a
//! server says would be copied once more on its way. Here only the headers are kept; the rest goes straight where it is needed.

use std::io::{Cursor, Error, ErrorKind, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::OpCode;

/// The longest header, in bytes.
const LONGEST: usize = 14;
/// The shortest.
const SHORTEST: usize = 2;
/// The most that a frame of control may hold, in bytes.
const CONTROL: u64 = 125;

/// Frames as a server sends them, one after the other.
#[derive(Debug)]
pub(super) struct Frames<Io> {
    io: Io,
    /// The header under way, as far as it has come.
    header: [u8; LONGEST],
    come: usize,
    /// How much of the frame under way is not read yet.
    left: u64,
}

impl<Io: AsyncRead + Unpin> Frames<Io> {
    pub(super) const fn new(io: Io) -> Self {
        Self { io, header: [0; LONGEST], come: 0, left: 0 }
    }

    /// How many bytes of the frame under way are not read yet.
    pub(super) const fn left(&self) -> u64 {
        self.left
    }

    /// Begins the next frame. Whatever is left of the one before must be read first.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<OpCode>> {
        debug_assert_eq!(self.left, 0, "a frame is not read to its end");
        loop {
            // No byte is taken that may belong to the content: a header says by itself whether it goes on.
            let wanted = self.header.get_mut(self.come..SHORTEST.max(self.come + 1)).unwrap_or_default();
            let mut wanted = ReadBuf::new(wanted);
            ready!(Pin::new(&mut self.io).poll_read(context, &mut wanted))?;
            if wanted.filled().is_empty() {
                return Poll::Ready(Err(ended()));
            }
            self.come += wanted.filled().len();
            let come = self.header.get(..self.come).unwrap_or_default();
            if come.len() < SHORTEST {
                continue;
            }
            let header = FrameHeader::parse(&mut Cursor::new(come)).map_err(Error::other)?;
            let Some((header, length)) = header else { continue };
            (self.come, self.left) = (0, length);
            let is_control = matches!(header.opcode, OpCode::Control(_));
            if header.rsv1 || header.rsv2 || header.rsv3 || header.mask.is_some() || (is_control && length > CONTROL) {
                let problem = format!("the API server sent a frame that no WebSocket has: {header:?}");
                return Poll::Ready(Err(Error::new(ErrorKind::InvalidData, problem)));
            }
            return Poll::Ready(Ok(header.opcode));
        }
    }

    /// Reads on in the frame under way, not beyond its end.
    pub(super) fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let (before, room) = (buffer.filled().len(), buffer.remaining());
        let mut frame = (&mut self.io).take(self.left);
        ready!(Pin::new(&mut frame).poll_read(context, buffer))?;
        let read = buffer.filled().len() - before;
        if read == 0 && room > 0 && self.left > 0 {
            return Poll::Ready(Err(ended()));
        }
        self.left = frame.limit();
        Poll::Ready(Ok(()))
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::UnexpectedEof, "the connection to the API server ended")
}
