//! SQLite building and querying a table: the real program that memlens is shown on.
//!
//! ```text
//! sqlite-example [ROWS [FOLDER]]       defaults: 100000, the system's folder for temporary files
//! ```
//!
//! The same work is done twice, on a database in memory and on one in a file in FOLDER (with a small
//! page cache, so that pages come and go), which is removed at the end: insert ROWS items in one
//! transaction, make an index, look items up by it, sort all of them, join and group them, change
//! and delete some. Each step's results go into a checksum; both databases must agree.

mod database;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use database::{Database, SqliteError};

fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sqlite-example: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Vec<String>) -> Result<(), Box<dyn Error>> {
    let rows: i64 = match arguments.first() {
        Some(text) => text.parse().map_err(|error| format!("ROWS is {text:?}: {error}"))?,
        None => 100_000,
    };
    let folder = arguments.get(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let in_memory = exercise(&Database::open(":memory:")?, rows)?;
    println!("memory  {in_memory}");

    let file = RemovedAtEnd(folder.join(format!("sqlite-example.{}.db", std::process::id())));
    let path = file.0.to_str().ok_or("FOLDER is no UTF-8")?;
    let database = Database::open(path)?;
    database.execute("PRAGMA cache_size = 200; PRAGMA synchronous = OFF; PRAGMA journal_mode = DELETE")?;
    let on_disk = exercise(&database, rows)?;
    println!("file    {on_disk}");
    if in_memory.to_string() != on_disk.to_string() {
        return Err("the two databases disagree".into());
    }
    Ok(())
}

/// A file that goes when this goes.
struct RemovedAtEnd(PathBuf);

impl Drop for RemovedAtEnd {
    fn drop(&mut self) {
        // Nothing is lost when it stays; it lies among temporary files.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// What each step found.
struct Results {
    lookups: Checksum,
    sort: Checksum,
    join: Checksum,
    changes: Checksum,
}

impl std::fmt::Display for Results {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { lookups, sort, join, changes } = self;
        write!(
            f,
            "lookups {:016x} sort {:016x} join {:016x} changes {:016x}",
            lookups.0, sort.0, join.0, changes.0
        )
    }
}

/// FNV-1a, 64 bits.
struct Checksum(u64);

impl Checksum {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn add_integer(&mut self, value: i64) {
        self.add(&value.to_le_bytes());
    }
}

fn exercise(database: &Database, rows: i64) -> Result<Results, SqliteError> {
    let owners = (rows / 100).max(1);
    build(database, rows, owners)?;
    Ok(Results {
        lookups: look_up(database, rows)?,
        sort: sort(database)?,
        join: join(database)?,
        changes: change(database, rows)?,
    })
}

/// A number that looks random: splitmix64's finaliser.
fn scrambled(index: i64) -> i64 {
    let mut z = (index as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 1) as i64
}

fn build(database: &Database, rows: i64, owners: i64) -> Result<(), SqliteError> {
    database.execute(
        "CREATE TABLE owner (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
         CREATE TABLE item (id INTEGER PRIMARY KEY, key INTEGER NOT NULL, owner INTEGER NOT NULL,
                            name TEXT NOT NULL, price INTEGER NOT NULL);
         BEGIN",
    )?;
    let mut insert = database.prepare("INSERT INTO owner VALUES (?1, ?2)")?;
    for id in 0..owners {
        insert.bind_integer(1, id)?;
        insert.bind_text(2, &format!("owner {id}"))?;
        insert.step()?;
    }
    let mut insert = database.prepare("INSERT INTO item VALUES (?1, ?2, ?3, ?4, ?5)")?;
    for id in 0..rows {
        let random = scrambled(id);
        insert.bind_integer(1, id)?;
        insert.bind_integer(2, random % rows)?;
        insert.bind_integer(3, random % owners)?;
        insert.bind_text(4, &format!("item {:08x} of {id}", random & 0xffff_ffff))?;
        insert.bind_integer(5, random % 10_007)?;
        insert.step()?;
    }
    database.execute("COMMIT; CREATE INDEX item_key ON item (key); CREATE INDEX item_owner ON item (owner)")
}

/// Finds items by their key, through the index.
fn look_up(database: &Database, rows: i64) -> Result<Checksum, SqliteError> {
    let mut checksum = Checksum::new();
    let mut select = database.prepare("SELECT id, price FROM item WHERE key = ?1 ORDER BY id")?;
    for lookup in 0..rows / 2 {
        select.bind_integer(1, scrambled(!lookup) % rows)?;
        while select.step()? {
            checksum.add_integer(select.integer(0));
            checksum.add_integer(select.integer(1));
        }
    }
    Ok(checksum)
}

/// Sorts all items by what no index has: the sorter's work.
fn sort(database: &Database) -> Result<Checksum, SqliteError> {
    let mut checksum = Checksum::new();
    let mut select = database.prepare("SELECT name FROM item ORDER BY price * 7919 % 10007, name")?;
    while select.step()? {
        checksum.add(select.text(0));
    }
    Ok(checksum)
}

/// Counts and sums items by owner.
fn join(database: &Database) -> Result<Checksum, SqliteError> {
    let mut checksum = Checksum::new();
    let mut select = database.prepare(
        "SELECT owner.name, count(*), sum(item.price), max(item.name)
         FROM owner JOIN item ON item.owner = owner.id
         GROUP BY owner.name ORDER BY sum(item.price) DESC, owner.name",
    )?;
    while select.step()? {
        checksum.add(select.text(0));
        checksum.add_integer(select.integer(1));
        checksum.add_integer(select.integer(2));
        checksum.add(select.text(3));
    }
    Ok(checksum)
}

/// Changes every fifth item, deletes every seventh, and says what is left.
fn change(database: &Database, rows: i64) -> Result<Checksum, SqliteError> {
    let mut checksum = Checksum::new();
    database.execute("BEGIN")?;
    let mut update = database.prepare("UPDATE item SET price = price + 1, key = ?2 WHERE id = ?1")?;
    for id in (0..rows).step_by(5) {
        update.bind_integer(1, id)?;
        update.bind_integer(2, scrambled(id + rows) % rows)?;
        update.step()?;
    }
    database.execute("DELETE FROM item WHERE id % 7 = 3; COMMIT")?;
    let mut select = database.prepare("SELECT count(*), sum(price), sum(key) FROM item")?;
    while select.step()? {
        (0..3).for_each(|column| checksum.add_integer(select.integer(column)));
    }
    Ok(checksum)
}
