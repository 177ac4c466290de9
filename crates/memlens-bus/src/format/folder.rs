//! A trace on disk: a folder with a file for each stream.
//!
//! ```text
//! bus.mlbus, bus.1.mlbus …   bus records, one file a card        or  bus.csv
//! pages.mlpages              page-table records
//! objects.txt                object events
//! truth.mltruth              what the virtual card knows; not needed
//! ```

use super::{BusReader, BusWriter, FormatError, Header, MergedBus, ObjectReader, ObjectWriter};
use super::{PageReader, PageWriter, TruthReader, TruthWriter};
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};

const BUFFER_BYTES: usize = 1 << 20;

/// A file that is read.
pub type TraceSource = BufReader<File>;
/// A file that is written.
pub type TraceSink = BufWriter<File>;

/// The folder of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceFolder {
    path: PathBuf,
}

impl TraceFolder {
    const PAGES: &str = "pages.mlpages";
    const OBJECTS: &str = "objects.txt";
    const TRUTH: &str = "truth.mltruth";

    /// The folder at `path`, which must be there.
    ///
    /// # Errors
    /// When it is not a folder, or has no bus records.
    pub fn open(path: &Path) -> io::Result<Self> {
        let folder = Self { path: path.to_owned() };
        match folder.bus_files()?.is_empty() {
            false => Ok(folder),
            true => {
                Err(io::Error::new(io::ErrorKind::NotFound, "there is no file bus.mlbus or bus.csv in it"))
            }
        }
    }

    /// Makes a folder. One that holds a trace is replaced if `replaces`; files that are no trace's stay.
    ///
    /// # Errors
    /// When it is there and not empty, or cannot be made.
    pub fn create(path: &Path, replaces: bool) -> io::Result<Self> {
        let folder = Self { path: path.to_owned() };
        match fs::create_dir(path) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Err(_) => {}
        }
        let mut is_empty = true;
        let mut ours = Vec::new();
        for entry in fs::read_dir(path)? {
            let name = entry?.file_name();
            is_empty = false;
            if is_ours(&name.to_string_lossy()) {
                ours.push(path.join(name));
            }
        }
        if is_empty {
            return Ok(folder);
        }
        if !replaces || ours.is_empty() {
            let kind = io::ErrorKind::AlreadyExists;
            let text = if replaces { "it exists and is no bus trace" } else { "it exists" };
            return Err(io::Error::new(kind, text));
        }
        ours.iter().try_for_each(fs::remove_file)?;
        Ok(folder)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files of bus records, by card.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn bus_files(&self) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            if is_bus(&name.to_string_lossy()) {
                files.push(self.path.join(name));
            }
        }
        files.sort();
        Ok(files)
    }

    /// All bus records, those of several cards merged by time.
    ///
    /// # Errors
    /// When a file cannot be opened or the files do not fit each other.
    pub fn bus(&self) -> Result<MergedBus<TraceSource>, FormatError> {
        let files = self.bus_files().map_err(FormatError::read)?;
        let readers = files.iter().map(|path| BusReader::new(source(path)?)).collect::<Result<_, _>>()?;
        MergedBus::new(readers)
    }

    /// The page-table records, if there are any.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn pages(&self) -> Result<Option<PageReader<TraceSource>>, FormatError> {
        self.optional(Self::PAGES)?.map(PageReader::new).transpose()
    }

    /// The object events, if there are any.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn objects(&self) -> Result<Option<ObjectReader<TraceSource>>, FormatError> {
        self.optional(Self::OBJECTS)?.map(ObjectReader::new).transpose()
    }

    /// The truth, if there is any.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn truth(&self) -> Result<Option<TruthReader<TraceSource>>, FormatError> {
        self.optional(Self::TRUTH)?.map(TruthReader::new).transpose()
    }

    /// Writes bus records.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn write_bus(&self, header: Header) -> Result<BusWriter<TraceSink>, FormatError> {
        let name = match header.channel {
            0 => "bus.mlbus".to_owned(),
            channel => format!("bus.{channel}.mlbus"),
        };
        BusWriter::new(self.sink(&name)?, header)
    }

    /// Writes page-table records.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn write_pages(&self, header: Header) -> Result<PageWriter<TraceSink>, FormatError> {
        PageWriter::new(self.sink(Self::PAGES)?, header)
    }

    /// Writes object events.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn write_objects(&self, header: &Header) -> Result<ObjectWriter<TraceSink>, FormatError> {
        ObjectWriter::new(self.sink(Self::OBJECTS)?, header)
    }

    /// Writes truth.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn write_truth(&self, header: &Header) -> Result<TruthWriter<TraceSink>, FormatError> {
        TruthWriter::new(self.sink(Self::TRUTH)?, header)
    }

    fn optional(&self, name: &str) -> Result<Option<TraceSource>, FormatError> {
        match File::open(self.path.join(name)) {
            Ok(file) => Ok(Some(BufReader::with_capacity(BUFFER_BYTES, file))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(FormatError::read(error)),
        }
    }

    fn sink(&self, name: &str) -> Result<TraceSink, FormatError> {
        let file = File::create(self.path.join(name)).map_err(FormatError::write)?;
        Ok(BufWriter::with_capacity(BUFFER_BYTES, file))
    }
}

fn source(path: &Path) -> Result<TraceSource, FormatError> {
    let file = File::open(path).map_err(FormatError::read)?;
    Ok(BufReader::with_capacity(BUFFER_BYTES, file))
}

fn is_bus(name: &str) -> bool {
    name.starts_with("bus.") && (name.ends_with("mlbus") || name.ends_with("csv"))
}

fn is_ours(name: &str) -> bool {
    is_bus(name) || [TraceFolder::PAGES, TraceFolder::OBJECTS, TraceFolder::TRUTH].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Packing, Stream};

    #[test]
    fn only_traces_are_replaced() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let path = place.path().join("t");
        let folder = TraceFolder::create(&path, false).expect("new");
        assert!(TraceFolder::open(&path).is_err(), "it has no bus records");
        folder
            .write_bus(Header::new(Stream::Bus, Packing::Blocks))
            .expect("written")
            .finish()
            .expect("written");
        assert!(TraceFolder::open(&path).is_ok());
        assert!(TraceFolder::create(&path, false).is_err());
        assert!(TraceFolder::create(&path, true).is_ok());
        fs::write(path.join("notes"), "x").expect("written");
        assert!(TraceFolder::create(&path, true).is_err(), "no trace any more");
        assert!(path.join("notes").exists());
    }
}
