//! The frames of a WebSocket, whose payload is read straight into the reader's buffer.
//!
//! A reader of whole messages has a buffer of its own, which it zeroes before each read, and a value for each message.
//! All output of a server would be copied once more. Here only the headers are buffered.

use std::io::{Cursor, Error, ErrorKind, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::OpCode;

/// The maximum length of a header, in bytes.
const LONGEST: usize = 14;
/// The minimum length of a header.
const SHORTEST: usize = 2;
/// The maximum payload of a control frame, in bytes.
const CONTROL: u64 = 125;

/// The frames that a server sends, in order.
#[derive(Debug)]
pub(super) struct Frames<Io> {
    io: Io,
    /// The current header, as far as it has arrived.
    header: [u8; LONGEST],
    come: usize,
    /// How much of the current frame is not read yet.
    left: u64,
}

impl<Io: AsyncRead + Unpin> Frames<Io> {
    pub(super) const fn new(io: Io) -> Self {
        Self { io, header: [0; LONGEST], come: 0, left: 0 }
    }

    /// How many bytes of the current frame are not read yet.
    pub(super) const fn left(&self) -> u64 {
        self.left
    }

    /// Starts the next frame. The previous one must be read to its end first.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<OpCode>> {
        debug_assert_eq!(self.left, 0, "a frame is not read to its end");
        loop {
            // No byte of the payload is consumed: a header says by itself how long it is.
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
                let problem = format!("the API server sent an invalid WebSocket frame: {header:?}");
                return Poll::Ready(Err(Error::new(ErrorKind::InvalidData, problem)));
            }
            return Poll::Ready(Ok(header.opcode));
        }
    }

    /// Reads from the current frame, not beyond its end.
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
