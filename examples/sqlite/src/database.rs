//! The few functions of SQLite's C interface that the example needs, made safe.

use std::ffi::{CStr, CString, c_int};
use std::fmt;
use std::ptr::{self, NonNull};

use libsqlite3_sys as sqlite;

/// What SQLite said.
#[derive(Debug)]
pub struct SqliteError(String);

impl fmt::Display for SqliteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sqlite: {}", self.0)
    }
}

impl std::error::Error for SqliteError {}

/// An open database.
pub struct Database {
    handle: NonNull<sqlite::sqlite3>,
}

impl Database {
    /// Opens `path`, which SQLite creates where it does not exist; `:memory:` lives in memory.
    pub fn open(path: &str) -> Result<Self, SqliteError> {
        let path = c_string(path)?;
        let mut handle = ptr::null_mut();
        // SAFETY: both pointers are valid for the call.
        let code = unsafe { sqlite::sqlite3_open(path.as_ptr(), &mut handle) };
        let handle = NonNull::new(handle).ok_or_else(|| SqliteError("out of memory".into()))?;
        let database = Self { handle };
        database.check(code)?;
        Ok(database)
    }

    /// Runs statements that give no rows, separated by semicolons.
    pub fn execute(&self, sql: &str) -> Result<(), SqliteError> {
        let sql = c_string(sql)?;
        // SAFETY: the handle is open, the text is terminated, no callback is given.
        let code = unsafe {
            sqlite::sqlite3_exec(self.handle.as_ptr(), sql.as_ptr(), None, ptr::null_mut(), ptr::null_mut())
        };
        self.check(code)
    }

    /// Compiles one statement.
    pub fn prepare(&self, sql: &str) -> Result<Statement<'_>, SqliteError> {
        let sql = c_string(sql)?;
        let mut handle = ptr::null_mut();
        // SAFETY: the handle is open; −1 says that the text is terminated, which it is.
        let code = unsafe {
            sqlite::sqlite3_prepare_v2(self.handle.as_ptr(), sql.as_ptr(), -1, &mut handle, ptr::null_mut())
        };
        self.check(code)?;
        let handle = NonNull::new(handle).ok_or_else(|| SqliteError("an empty statement".into()))?;
        Ok(Statement { database: self, handle })
    }

    fn check(&self, code: c_int) -> Result<(), SqliteError> {
        if code == sqlite::SQLITE_OK {
            return Ok(());
        }
        // SAFETY: the handle is open; the message is terminated and valid until the next call.
        let message = unsafe { CStr::from_ptr(sqlite::sqlite3_errmsg(self.handle.as_ptr())) };
        Err(SqliteError(message.to_string_lossy().into_owned()))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: statements borrow the database, so all are finalised; the handle is closed once.
        unsafe { sqlite::sqlite3_close(self.handle.as_ptr()) };
    }
}

/// A prepared statement. Parameters and columns are numbered as SQLite does: from 1 and from 0.
pub struct Statement<'database> {
    database: &'database Database,
    handle: NonNull<sqlite::sqlite3_stmt>,
}

impl Statement<'_> {
    /// Gives a parameter a number.
    pub fn bind_integer(&mut self, parameter: c_int, value: i64) -> Result<(), SqliteError> {
        // SAFETY: the statement is not finalised.
        let code = unsafe { sqlite::sqlite3_bind_int64(self.handle.as_ptr(), parameter, value) };
        self.database.check(code)
    }

    /// Gives a parameter a text, which SQLite copies.
    pub fn bind_text(&mut self, parameter: c_int, value: &str) -> Result<(), SqliteError> {
        let length = c_int::try_from(value.len()).map_err(|_| SqliteError("text too long".into()))?;
        // SAFETY: pointer and length are those of `value`; SQLITE_TRANSIENT makes SQLite copy it.
        let code = unsafe {
            sqlite::sqlite3_bind_text(
                self.handle.as_ptr(),
                parameter,
                value.as_ptr().cast(),
                length,
                sqlite::SQLITE_TRANSIENT(),
            )
        };
        self.database.check(code)
    }

    /// Goes to the next row; false when there is none, and the statement can then run again.
    pub fn step(&mut self) -> Result<bool, SqliteError> {
        // SAFETY: the statement is not finalised.
        match unsafe { sqlite::sqlite3_step(self.handle.as_ptr()) } {
            sqlite::SQLITE_ROW => Ok(true),
            sqlite::SQLITE_DONE => {
                // SAFETY: as above.
                let code = unsafe { sqlite::sqlite3_reset(self.handle.as_ptr()) };
                self.database.check(code).map(|()| false)
            }
            code => self.database.check(code).map(|()| false),
        }
    }

    /// A column of the current row as a number.
    pub fn integer(&self, column: c_int) -> i64 {
        // SAFETY: the statement is not finalised; SQLite answers 0 for columns that are not there.
        unsafe { sqlite::sqlite3_column_int64(self.handle.as_ptr(), column) }
    }

    /// A column of the current row as bytes of text.
    pub fn text(&self, column: c_int) -> &[u8] {
        // SAFETY: text and length are of one column, asked for in the order SQLite prescribes; they
        // stay valid until the statement, which is borrowed, is stepped.
        unsafe {
            let text = sqlite::sqlite3_column_text(self.handle.as_ptr(), column);
            let length = sqlite::sqlite3_column_bytes(self.handle.as_ptr(), column);
            if text.is_null() { &[] } else { std::slice::from_raw_parts(text, length as usize) }
        }
    }
}

impl Drop for Statement<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is finalised once.
        unsafe { sqlite::sqlite3_finalize(self.handle.as_ptr()) };
    }
}

fn c_string(text: &str) -> Result<CString, SqliteError> {
    CString::new(text).map_err(|_| SqliteError("a NUL in a text".into()))
}
