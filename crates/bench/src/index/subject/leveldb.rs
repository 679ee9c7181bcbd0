//! LevelDB by its C interface (Debian's `libleveldb-dev`), as MDHIM uses it: batched puts, one get for each record.
//!
//! MDHIM's `ds_leveldb.c` sets a block cache and a write buffer of 5 MiB each, 10,000 open files, a Bloom filter of 256 bits a key,
//! and leaves Snappy on. Here cache and write buffers fill the common budget instead, and the filter has 10 bits a key: one of
//! 256 would be larger than the records and slower to ask. All else is as MDHIM has it.
use super::c_api::{self, table_bytes};
use super::value::{self, KEY, VALUE};
use super::{Record, RecordLocation, Subject, Tuning, Worker};
use crate::fail::{Context, Failure, Result};
use crate::sizes;
use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::null_mut;

#[allow(
    warnings,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    reason = "generated"
)]
mod c {
    include!(concat!(env!("OUT_DIR"), "/leveldb.rs"));
}
use c::*;

/// What is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Settings {
    write_buffer: usize,
    cache: usize,
    bloom: c_int,
    block: usize,
    file: usize,
    snappy: c_int,
}

/// Two write buffers, one being written, and the cache are the budget.
fn settings(tuning: &Tuning) -> Result<Settings> {
    let memory = tuning.memory as usize;
    let mut out = Settings {
        write_buffer: memory / 4,
        cache: memory / 2,
        bloom: 10,
        block: 4096,
        file: 2 << 20,
        snappy: 1,
    };
    let pairs = tuning.leveldb_options.split(';').filter(|p| !p.is_empty());
    for pair in pairs {
        let wrong = || Failure::new(format!("--leveldb-options: '{pair}' is not understood"));
        let (name, number) = pair.split_once('=').ok_or_else(wrong)?;
        let number: usize = number.trim().parse().map_err(|_| wrong())?;
        let small = c_int::try_from(number).unwrap_or(c_int::MAX);
        match name.trim() {
            "write_buffer" => out.write_buffer = number,
            "cache" => out.cache = number,
            "bloom" => out.bloom = small,
            "block" => out.block = number,
            "file" => out.file = number,
            "snappy" => out.snappy = small,
            _ => return Err(wrong()),
        }
    }
    Ok(out)
}

/// For the header.
pub fn describe(tuning: &Tuning) -> String {
    settings(tuning).map_or(String::new(), |s| {
        let size = |n: usize| sizes::show(n as f64);
        format!(
            "1.23, as MDHIM: one get a record, write buffer {} (2 at most), block cache {}, blocks {}, files {}, {}, Bloom filter {} bits a key, checksums of reads off (its default)",
            size(s.write_buffer),
            size(s.cache),
            size(s.block),
            size(s.file),
            if s.snappy == 1 { "Snappy" } else { "no compression" },
            s.bloom,
        )
    })
}

/// See the head of this file.
pub struct LevelDb {
    db: *mut leveldb_t,
    options: *mut leveldb_options_t,
    cache: *mut leveldb_cache_t,
    filter: *mut leveldb_filterpolicy_t,
    read: *mut leveldb_readoptions_t,
    write: *mut leveldb_writeoptions_t,
}

// SAFETY: the library's documentation allows any number of threads to use one database; options are only read after it is open.
unsafe impl Sync for LevelDb {}

impl LevelDb {
    /// Opens it.
    pub fn open(dir: &Path, tuning: &Tuning) -> Result<LevelDb> {
        let s = settings(tuning)?;
        let name = CString::new(dir.as_os_str().as_bytes()).doing(dir.display())?;
        // SAFETY: plain constructors; what they return is destroyed once, in `drop`. Cache and filter outlive the database.
        let mut this = unsafe {
            LevelDb {
                db: null_mut(),
                options: leveldb_options_create(),
                cache: leveldb_cache_create_lru(s.cache),
                filter: match s.bloom {
                    0 => null_mut(),
                    bits => leveldb_filterpolicy_create_bloom(bits),
                },
                read: leveldb_readoptions_create(),
                write: leveldb_writeoptions_create(),
            }
        };
        let mut error = null_mut();
        // SAFETY: all objects are live; `name` ends with a zero.
        unsafe {
            leveldb_options_set_create_if_missing(this.options, 1);
            leveldb_options_set_write_buffer_size(this.options, s.write_buffer);
            leveldb_options_set_max_open_files(this.options, 10_000);
            leveldb_options_set_cache(this.options, this.cache);
            leveldb_options_set_block_size(this.options, s.block);
            leveldb_options_set_max_file_size(this.options, s.file);
            leveldb_options_set_compression(this.options, s.snappy);
            leveldb_options_set_filter_policy(this.options, this.filter);
            this.db = leveldb_open(this.options, name.as_ptr(), &raw mut error);
        }
        check(error)?;
        Ok(this)
    }

    fn property(&self, name: &CStr) -> Option<String> {
        // SAFETY: the database is open; the text is the library's, and not used again.
        unsafe { c_api::take_text(leveldb_property_value(self.db, name.as_ptr()), leveldb_free) }
    }
}

/// Turns the library's error into ours.
fn check(error: *mut c_char) -> Result<()> {
    // SAFETY: an error is a text of the library's, or null, and is not used again.
    unsafe { c_api::check("leveldb", error, leveldb_free) }
}

impl Drop for LevelDb {
    fn drop(&mut self) {
        // SAFETY: each was created by `open`, is destroyed once, the database before what it uses.
        unsafe {
            if !self.db.is_null() {
                leveldb_close(self.db);
            }
            leveldb_options_destroy(self.options);
            leveldb_cache_destroy(self.cache);
            if !self.filter.is_null() {
                leveldb_filterpolicy_destroy(self.filter);
            }
            leveldb_readoptions_destroy(self.read);
            leveldb_writeoptions_destroy(self.write);
        }
    }
}

impl Subject for LevelDb {
    fn worker(&self) -> Result<Box<dyn Worker + '_>> {
        // SAFETY: a plain constructor; destroyed once, in `drop`.
        let batch = unsafe { leveldb_writebatch_create() };
        Ok(Box::new(LevelDbWorker { of: self, batch }))
    }

    fn flush(&self) -> Result<()> {
        // It has no flush; but to compact a range it first writes the MemTable. Nothing lies behind the last key.
        let end = [u8::MAX; KEY];
        // SAFETY: the database is open; both keys are live for the call.
        unsafe {
            leveldb_compact_range(self.db, end.as_ptr().cast(), KEY, end.as_ptr().cast(), KEY);
        }
        Ok(())
    }

    fn memory(&self) -> u64 {
        let text = self.property(c"leveldb.approximate-memory-usage");
        text.and_then(|t| t.parse().ok()).unwrap_or(0)
    }

    fn written_to_tables(&self, batches: &[u64], all: u64) -> u64 {
        table_bytes(batches, all)
    }

    fn note(&self) -> String {
        let files = (0..7).map(|level| {
            let name = CString::new(format!("leveldb.num-files-at-level{level}"));
            name.ok()
                .and_then(|n| self.property(&n))
                .unwrap_or_default()
        });
        format!("files by level: {}", files.collect::<Vec<_>>().join(" "))
    }
}

struct LevelDbWorker<'a> {
    of: &'a LevelDb,
    batch: *mut leveldb_writebatch_t,
}

impl Drop for LevelDbWorker<'_> {
    fn drop(&mut self) {
        // SAFETY: created with `self`, destroyed once.
        unsafe { leveldb_writebatch_destroy(self.batch) }
    }
}

impl Worker for LevelDbWorker<'_> {
    fn put(&mut self, batch: &[Record]) -> Result<()> {
        let mut error = null_mut();
        // SAFETY: database, options and batch are live; keys and values are copied by the call.
        unsafe {
            leveldb_writebatch_clear(self.batch);
            for record in batch {
                let (key, value) = (value::key(record.offset), value::value(record));
                let (k, v) = (key.as_ptr().cast(), value.as_ptr().cast());
                leveldb_writebatch_put(self.batch, k, KEY, v, VALUE);
            }
            leveldb_write(self.of.db, self.of.write, self.batch, &raw mut error);
        }
        check(error)
    }

    fn get(&mut self, batch: &[Record], answers: &mut Vec<RecordLocation>) -> Result<()> {
        for record in batch {
            let key = value::key(record.offset);
            let (mut len, mut error) = (0, null_mut());
            let k: *const c_char = key.as_ptr().cast();
            // SAFETY: database and options are live, the key for the call; what is found is `len` bytes, copied, then freed once.
            let found = unsafe {
                let out = leveldb_get(
                    self.of.db,
                    self.of.read,
                    k,
                    KEY,
                    &raw mut len,
                    &raw mut error,
                );
                check(error)?;
                if out.is_null() {
                    None
                } else {
                    let answer = value::answer(std::slice::from_raw_parts(out.cast(), len));
                    leveldb_free(out.cast());
                    answer
                }
            };
            let missing = || Failure::new(format!("leveldb lost the record at {}", record.offset));
            answers.push(found.ok_or_else(missing)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_put_is_found_after_a_flush_and_a_restart() {
        super::super::tests::round_trip("leveldb");
    }
}
