//! Object events: which virtual addresses of which process belong to what, from when to when.
//!
//! Lines of text, because whoever makes them (an `LD_PRELOAD` library, a script over `/proc`) should need no
//! library. Fields are separated by one space; numbers are decimal or `0x…`; a name is the rest of the line.
//!
//! ```text
//! object PID ID KIND NAME          what the number means; kinds are the words of reports, `heap` …
//! site PID ID TEXT                 where it was allocated: a call stack, innermost first
//! region PID START BYTES ID        the addresses are the object's; a later region wins over what it overlaps
//! clear PID START BYTES            no region is there any more
//! block PID LAYER START BYTES ID   a block begins; layer 1: of the heap, 2: inside such a block (a pool's)
//! end PID LAYER START              the block ends
//! fork PARENT CHILD                the child has the same objects, under the same numbers
//! exit PID                         all of its objects end
//! tag                              what stands since the last `tag` happens at the next tag of the bus trace
//! started                          what stands before was so when the trace began and needs no tag
//! ```

use super::FormatError;
use super::header::{Header, Packing, Stream};
use memlens_types::ObjectKind;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Read, Seek, Write};

/// No line is longer.
const MAX_LINE_BYTES: u64 = 1 << 16;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectEvent {
    /// What a number means.
    Object {
        /// Process.
        pid: u32,
        /// The number.
        id: u32,
        /// Kind.
        kind: ObjectKind,
        /// Name.
        name: String,
    },
    /// Where an object was allocated.
    Site {
        /// Process.
        pid: u32,
        /// The object.
        id: u32,
        /// Call stack, innermost first.
        text: String,
    },
    /// Addresses belong to an object.
    Region {
        /// Process.
        pid: u32,
        /// First address.
        start: u64,
        /// Length.
        bytes: u64,
        /// The object.
        id: u32,
    },
    /// Addresses belong to no region.
    Clear {
        /// Process.
        pid: u32,
        /// First address.
        start: u64,
        /// Length.
        bytes: u64,
    },
    /// A block begins.
    Block {
        /// Process.
        pid: u32,
        /// 1 or 2.
        layer: u8,
        /// First address.
        start: u64,
        /// Length.
        bytes: u64,
        /// The object.
        id: u32,
    },
    /// A block ends.
    End {
        /// Process.
        pid: u32,
        /// 1 or 2.
        layer: u8,
        /// First address.
        start: u64,
    },
    /// A process was copied.
    Fork {
        /// Of this one …
        parent: u32,
        /// … this is the copy.
        child: u32,
    },
    /// A process ended.
    Exit {
        /// Process.
        pid: u32,
    },
    /// End of a group.
    Tag,
    /// End of what was there at the start.
    Started,
}

/// A name on one line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

impl ObjectEvent {
    /// The line, without its end.
    pub fn to_line(&self) -> String {
        match self {
            Self::Object { pid, id, kind, name } => format!("object {pid} {id} {kind} {}", one_line(name)),
            Self::Site { pid, id, text } => format!("site {pid} {id} {}", one_line(text)),
            Self::Region { pid, start, bytes, id } => format!("region {pid} {start:#x} {bytes} {id}"),
            Self::Clear { pid, start, bytes } => format!("clear {pid} {start:#x} {bytes}"),
            Self::Block { pid, layer, start, bytes, id } => {
                format!("block {pid} {layer} {start:#x} {bytes} {id}")
            }
            Self::End { pid, layer, start } => format!("end {pid} {layer} {start:#x}"),
            Self::Fork { parent, child } => format!("fork {parent} {child}"),
            Self::Exit { pid } => format!("exit {pid}"),
            Self::Tag => "tag".into(),
            Self::Started => "started".into(),
        }
    }

    /// Reads a line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(line: &str) -> Result<Self, String> {
        let mut fields = Fields { rest: line };
        let event = match fields.word("event")? {
            "object" => {
                let (pid, id) = (fields.number("pid")?, fields.number("id")?);
                let kind = fields.word("kind")?.parse().map_err(|error| format!("its kind is {error}"))?;
                return Ok(Self::Object { pid, id, kind, name: fields.rest.to_owned() });
            }
            "site" => {
                let (pid, id) = (fields.number("pid")?, fields.number("id")?);
                return Ok(Self::Site { pid, id, text: fields.rest.to_owned() });
            }
            "region" => {
                let (pid, (start, bytes)) = (fields.number("pid")?, fields.range()?);
                Self::Region { pid, start, bytes, id: fields.number("id")? }
            }
            "clear" => {
                let (pid, (start, bytes)) = (fields.number("pid")?, fields.range()?);
                Self::Clear { pid, start, bytes }
            }
            "block" => {
                let (pid, layer) = (fields.number("pid")?, fields.layer()?);
                let (start, bytes) = fields.range()?;
                Self::Block { pid, layer, start, bytes, id: fields.number("id")? }
            }
            "end" => {
                let (pid, layer) = (fields.number("pid")?, fields.layer()?);
                Self::End { pid, layer, start: fields.number64("start")? }
            }
            "fork" => Self::Fork { parent: fields.number("parent")?, child: fields.number("child")? },
            "exit" => Self::Exit { pid: fields.number("pid")? },
            "tag" => Self::Tag,
            "started" => Self::Started,
            other => return Err(format!("`{other}` is no event")),
        };
        match fields.rest.trim() {
            "" => Ok(event),
            rest => Err(format!("`{rest}` is too much")),
        }
    }
}

struct Fields<'a> {
    rest: &'a str,
}

impl<'a> Fields<'a> {
    fn word(&mut self, what: &str) -> Result<&'a str, String> {
        let (word, rest) = self.rest.split_once(' ').unwrap_or((self.rest, ""));
        self.rest = rest;
        if word.is_empty() { Err(format!("the {what} is missing")) } else { Ok(word) }
    }

    fn number64(&mut self, what: &str) -> Result<u64, String> {
        let word = self.word(what)?;
        let parsed = match word.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => word.parse(),
        };
        parsed.map_err(|_| format!("the {what} `{word}` is not a number"))
    }

    fn number(&mut self, what: &str) -> Result<u32, String> {
        let number = self.number64(what)?;
        number.try_into().map_err(|_| format!("the {what} {number} is too large"))
    }

    fn layer(&mut self) -> Result<u8, String> {
        match self.number64("layer")? {
            layer @ 1..=2 => Ok(layer as u8),
            other => Err(format!("the layer {other} is neither 1 nor 2")),
        }
    }

    fn range(&mut self) -> Result<(u64, u64), String> {
        let (start, bytes) = (self.number64("start")?, self.number64("length")?);
        match start.checked_add(bytes) {
            Some(_) => Ok((start, bytes)),
            None => Err(format!("{start:#x}+{bytes} passes the end of the address space")),
        }
    }
}

/// Writes object events.
#[derive(Debug)]
pub struct ObjectWriter<W: Write> {
    out: W,
}

impl<W: Write> ObjectWriter<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// When writing fails.
    pub fn new(mut out: W, header: &Header) -> Result<Self, FormatError> {
        let header = header.of(Stream::Objects, Packing::Text);
        out.write_all(header.to_line().as_bytes()).map_err(FormatError::write)?;
        Ok(Self { out })
    }

    /// Writes an event.
    ///
    /// # Errors
    /// When writing fails.
    pub fn event(&mut self, event: &ObjectEvent) -> Result<(), FormatError> {
        writeln!(self.out, "{}", event.to_line()).map_err(FormatError::write)
    }

    /// Writes the end.
    ///
    /// # Errors
    /// When writing fails.
    pub fn finish(mut self) -> Result<W, FormatError> {
        writeln!(self.out, "# end").and_then(|()| self.out.flush()).map_err(FormatError::write)?;
        Ok(self.out)
    }
}

/// Reads object events.
#[derive(Debug)]
pub struct ObjectReader<R> {
    header: Header,
    source: R,
    place: ObjectPosition,
    buffer: Vec<u8>,
}

/// A place between two lines, from which reading can go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectPosition {
    /// Bytes behind the header.
    bytes: u64,
    /// Lines read, with the header.
    line: u64,
    /// The last line of all was there.
    has_end: bool,
}

impl<R: BufRead + Seek> ObjectReader<R> {
    /// Goes on from a place, on a reader that has not read yet.
    ///
    /// # Errors
    /// When the file has no such place.
    pub fn resume(&mut self, position: &ObjectPosition) -> Result<(), FormatError> {
        self.place = *position;
        super::blocks::skip(&mut self.source, position.bytes)
    }
}

impl<R: BufRead> ObjectReader<R> {
    /// Where reading stands.
    pub fn position(&self) -> ObjectPosition {
        self.place
    }

    /// Reads the header.
    ///
    /// # Errors
    /// When it is not that of object events.
    pub fn new(mut source: R) -> Result<Self, FormatError> {
        let header = Header::read(&mut source)?;
        if header.stream != Stream::Objects || header.packing != Packing::Text {
            return Err(FormatError::Header("the file is of another stream than objects".into()));
        }
        Ok(Self {
            header,
            source,
            place: ObjectPosition { line: 1, ..ObjectPosition::default() },
            buffer: Vec::new(),
        })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whether the last line was there.
    pub fn has_end(&self) -> bool {
        self.place.has_end
    }

    /// The next event; `None` at the end.
    ///
    /// # Errors
    /// When reading fails or a line makes no sense; after the latter the next call goes on behind it.
    pub fn next_event(&mut self) -> Result<Option<ObjectEvent>, FormatError> {
        loop {
            self.buffer.clear();
            let mut limited = (&mut self.source).take(MAX_LINE_BYTES);
            let got = limited.read_until(b'\n', &mut self.buffer).map_err(FormatError::read)?;
            if got == 0 {
                return Ok(None);
            }
            self.place.bytes += got as u64;
            self.place.line += 1;
            let text = String::from_utf8_lossy(&self.buffer);
            let text = text.trim_end_matches(['\n', '\r']);
            if text == "# end" {
                self.place.has_end = true;
            } else if !text.is_empty() && !text.starts_with('#') {
                self.place.has_end = false;
                let parsed = ObjectEvent::parse(text);
                return match parsed {
                    Ok(event) => Ok(Some(event)),
                    Err(problem) => Err(FormatError::Line { line: self.place.line, problem }),
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events() -> Vec<ObjectEvent> {
        vec![
            ObjectEvent::Object { pid: 1, id: 2, kind: ObjectKind::Heap, name: "a b\tc".into() },
            ObjectEvent::Site { pid: 1, id: 2, text: "main < start".into() },
            ObjectEvent::Region { pid: 1, start: 0x1000, bytes: 4096, id: 2 },
            ObjectEvent::Clear { pid: 1, start: 0x1000, bytes: 1 },
            ObjectEvent::Started,
            ObjectEvent::Block { pid: 1, layer: 1, start: 0x5000, bytes: 77, id: 2 },
            ObjectEvent::End { pid: 1, layer: 1, start: 0x5000 },
            ObjectEvent::Fork { parent: 1, child: 3 },
            ObjectEvent::Exit { pid: 3 },
            ObjectEvent::Tag,
        ]
    }

    #[test]
    fn events_come_back_as_they_were() {
        let mut writer =
            ObjectWriter::new(Vec::new(), &Header::new(Stream::Bus, Packing::Blocks)).expect("written");
        events().iter().for_each(|event| writer.event(event).expect("written"));
        let bytes = writer.finish().expect("written");
        let mut reader = ObjectReader::new(&bytes[..]).expect("a header");
        let back: Vec<_> = std::iter::from_fn(|| reader.next_event().expect("sound")).collect();
        let mut expected = events();
        // A control character would end the line or hide.
        expected[0] = ObjectEvent::Object { pid: 1, id: 2, kind: ObjectKind::Heap, name: "a b c".into() };
        assert_eq!(back, expected);
        assert!(reader.has_end());
    }

    #[test]
    fn a_bad_line_is_named_and_passed_over() {
        let header = Header::new(Stream::Objects, Packing::Text).to_line();
        let text = format!("{header}exit 1\nblock 1 3 0x10 1 1\n\nexit 2\n");
        let mut reader = ObjectReader::new(text.as_bytes()).expect("a header");
        assert_eq!(reader.next_event().expect("sound"), Some(ObjectEvent::Exit { pid: 1 }));
        let error = reader.next_event().expect_err("layer 3").to_string();
        assert_eq!(error, "read line 3: the layer 3 is neither 1 nor 2");
        assert_eq!(reader.next_event().expect("sound"), Some(ObjectEvent::Exit { pid: 2 }));
        assert_eq!(reader.next_event().expect("sound"), None);
        assert!(!reader.has_end());
    }

    #[test]
    fn lines_say_what_is_wrong_with_them() {
        for (line, expected) in [
            ("exit", "the pid is missing"),
            ("exit 1 2", "`2` is too much"),
            ("region 1 0xffffffffffffffff 2 1", "end of the address space"),
            ("object 1 1 stone x", "its kind is"),
            ("go 1", "no event"),
            ("exit 4294967296", "too large"),
        ] {
            let problem = ObjectEvent::parse(line).expect_err(line);
            assert!(problem.contains(expected), "{line}: {problem}");
        }
    }
}
