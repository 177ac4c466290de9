//! What a process will execute.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// A program with its arguments and environment, ready for execve(2): nothing of it needs memory any more.
#[derive(Clone, Debug)]
pub struct Image {
    pub(crate) file: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Image {
    /// The program in `file`, with its own name as the first of `arguments` and this process's environment.
    ///
    /// # Errors
    /// `InvalidInput`: a word has a zero byte in it.
    pub fn new(file: &Path, arguments: &[OsString]) -> io::Result<Self> {
        let file = CString::new(file.as_os_str().as_bytes())?;
        let arguments =
            arguments.iter().map(|word| CString::new(word.as_bytes())).collect::<Result<_, _>>()?;
        let mut image = Self { file, arguments, environment: Vec::new() };
        for (name, value) in env::vars_os() {
            image.add_variable(&name, &value)?;
        }
        Ok(image)
    }

    /// Adds a variable at the end of the environment. It replaces none of the same name.
    ///
    /// # Errors
    /// `InvalidInput`: name or value has a zero byte in it.
    pub fn add_variable(&mut self, name: &OsStr, value: &OsStr) -> io::Result<()> {
        self.environment.push(CString::new([name.as_bytes(), b"=", value.as_bytes()].concat())?);
        Ok(())
    }

    /// Sets a variable: in the place of one of the same name, else at the end of the environment.
    ///
    /// # Errors
    /// As [`Self::add_variable`].
    pub fn set_variable(&mut self, name: &OsStr, value: &OsStr) -> io::Result<()> {
        let prefix = [name.as_bytes(), b"="].concat();
        let known = self.environment.iter().position(|word| word.as_bytes().starts_with(&prefix));
        self.add_variable(name, value)?;
        if let Some(known) = known {
            self.environment.swap_remove(known);
        }
        Ok(())
    }

    /// Pointers for `execve`, valid as long as the image is.
    pub(crate) fn argv_and_envp(&self) -> [Vec<*const libc::c_char>; 2] {
        [&self.arguments, &self.environment]
            .map(|words| words.iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect())
    }
}
