//! RocksDB by its C interface (Debian's `librocksdb-dev`), tuned for these records.
//!
//! Puts are one `WriteBatch` a batch; gets one `MultiGet` a batch, with the flag for sorted keys where they are sorted. What is
//! set, and what was tried and lost, stands in `docs/index-bench.md`; options that the C interface lacks are set by the option
//! string.
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
    include!(concat!(env!("OUT_DIR"), "/rocksdb.rs"));
}
use c::*;

/// Levels, sizes and the like, as its own option string. Two write buffers of a quarter and a cache of a half are the budget.
fn option_string(tuning: &Tuning) -> String {
    let buffer = tuning.memory / 4;
    format!(
        "write_buffer_size={buffer};max_write_buffer_number=2;level0_file_num_compaction_trigger=4;\
         max_bytes_for_level_base={};level_compaction_dynamic_level_bytes=true;target_file_size_base={buffer};\
         compression=kLZ4Compression;unordered_write=true;optimize_filters_for_hits=true;max_open_files=-1;{}",
        buffer * 4,
        tuning.rocksdb_options
    )
}

const BLOCK: usize = 16 << 10;
const BLOOM: f64 = 10.0;

/// For the header.
pub fn describe(tuning: &Tuning) -> String {
    format!(
        "7.8, MultiGet of a batch (sorted input where it is), block cache {}, blocks {}, format 5, full Bloom filter of {BLOOM} bits a key, an insert hint for each batch, no counting of comparisons, parallelism of all processors; {}",
        sizes::show(tuning.memory as f64 / 2.0),
        sizes::show(BLOCK as f64),
        option_string(tuning).trim_end_matches(';'),
    )
}

/// See the head of this file.
pub struct RocksDb {
    db: *mut rocksdb_t,
    family: *mut rocksdb_column_family_handle_t,
    base: *mut rocksdb_options_t,
    options: *mut rocksdb_options_t,
    cache: *mut rocksdb_cache_t,
    read: *mut rocksdb_readoptions_t,
    write: *mut rocksdb_writeoptions_t,
}

// SAFETY: the library allows any number of threads to use one database; options are only read after it is open.
unsafe impl Sync for RocksDb {}

impl RocksDb {
    /// Opens it.
    pub fn open(dir: &Path, tuning: &Tuning) -> Result<RocksDb> {
        let name = CString::new(dir.as_os_str().as_bytes()).doing(dir.display())?;
        let text = CString::new(option_string(tuning)).doing("--rocksdb-options")?;
        let threads = std::thread::available_parallelism().map_or(2, |n| n.get() as c_int);
        // SAFETY: plain constructors; what they return is destroyed once, in `drop`.
        let mut this = unsafe {
            RocksDb {
                db: null_mut(),
                family: null_mut(),
                base: rocksdb_options_create(),
                options: rocksdb_options_create(),
                cache: rocksdb_cache_create_lru(tuning.memory as usize / 2),
                read: rocksdb_readoptions_create(),
                write: rocksdb_writeoptions_create(),
            }
        };
        let mut error = null_mut();
        // SAFETY: all objects are live. The options take the filter over, and share the cache; the table options are copied.
        unsafe {
            let table = rocksdb_block_based_options_create();
            rocksdb_block_based_options_set_block_cache(table, this.cache);
            rocksdb_block_based_options_set_block_size(table, BLOCK);
            rocksdb_block_based_options_set_format_version(table, 5);
            let bloom = rocksdb_filterpolicy_create_bloom_full(BLOOM);
            rocksdb_block_based_options_set_filter_policy(table, bloom);
            rocksdb_options_set_create_if_missing(this.base, 1);
            rocksdb_options_increase_parallelism(this.base, threads);
            rocksdb_options_set_block_based_table_factory(this.base, table);
            rocksdb_block_based_options_destroy(table);
            rocksdb_writeoptions_set_memtable_insert_hint_per_batch(this.write, 1);
            rocksdb_get_options_from_string(this.base, text.as_ptr(), this.options, &raw mut error);
        }
        check(error)?;
        let mut error = null_mut();
        // SAFETY: one family, named, with live options; one place for its handle.
        unsafe {
            this.db = rocksdb_open_column_families(
                this.options,
                name.as_ptr(),
                1,
                &c"default".as_ptr(),
                &this.options.cast_const(),
                &raw mut this.family,
                &raw mut error,
            );
        }
        check(error)?;
        Ok(this)
    }

    fn number(&self, name: &CStr) -> u64 {
        let mut out = 0;
        // SAFETY: the database is open; one place for the number.
        match unsafe { rocksdb_property_int(self.db, name.as_ptr(), &raw mut out) } {
            0 => out,
            _ => 0,
        }
    }
}

/// Turns the library's error into ours.
fn check(error: *mut c_char) -> Result<()> {
    // SAFETY: an error is a text of the library's, or null, and is not used again.
    unsafe { c_api::check("rocksdb", error, rocksdb_free) }
}

impl Drop for RocksDb {
    fn drop(&mut self) {
        // SAFETY: each was created by `open`, is destroyed once, the database before what it uses.
        unsafe {
            if !self.db.is_null() {
                rocksdb_column_family_handle_destroy(self.family);
                rocksdb_close(self.db);
            }
            rocksdb_options_destroy(self.options);
            rocksdb_options_destroy(self.base);
            rocksdb_cache_destroy(self.cache);
            rocksdb_readoptions_destroy(self.read);
            rocksdb_writeoptions_destroy(self.write);
        }
    }
}

impl Subject for RocksDb {
    fn worker(&self) -> Result<Box<dyn Worker + '_>> {
        // SAFETY: a setting of this thread, and a plain constructor; what it makes is destroyed once, in `drop`.
        let batch = unsafe {
            // Comparisons are not counted: that costs a quarter of a put.
            rocksdb_set_perf_level(1);
            rocksdb_writebatch_create()
        };
        Ok(Box::new(RocksDbWorker {
            of: self,
            batch,
            keys: Vec::new(),
            starts: Vec::new(),
            lens: Vec::new(),
            values: Vec::new(),
            errors: Vec::new(),
        }))
    }

    fn flush(&self) -> Result<()> {
        let mut error = null_mut();
        // SAFETY: the database is open; the options live for the call and are destroyed once. They wait, by default.
        unsafe {
            let options = rocksdb_flushoptions_create();
            rocksdb_flush(self.db, options, &raw mut error);
            rocksdb_flushoptions_destroy(options);
        }
        check(error)
    }

    fn busy(&self) -> bool {
        self.number(c"rocksdb.compaction-pending")
            + self.number(c"rocksdb.num-running-compactions")
            + self.number(c"rocksdb.num-running-flushes")
            > 0
    }

    fn memory(&self) -> u64 {
        // SAFETY: the cache is live.
        let cache = unsafe { rocksdb_cache_get_usage(self.cache) } as u64;
        cache
            + self.number(c"rocksdb.cur-size-all-mem-tables")
            + self.number(c"rocksdb.estimate-table-readers-mem")
    }

    fn written_to_tables(&self, batches: &[u64], all: u64) -> u64 {
        table_bytes(batches, all)
    }

    fn note(&self) -> String {
        // SAFETY: the database is open; the text is the library's, and not used again.
        let text = unsafe {
            let text = rocksdb_property_value(self.db, c"rocksdb.levelstats".as_ptr());
            c_api::take_text(text, rocksdb_free)
        };
        let Some(text) = text else {
            return String::new();
        };
        let lines = text.lines().skip(2).map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.join(":")
        });
        let lines: Vec<String> = lines.collect();
        format!("level:files:MB {}", lines.join(" "))
    }
}

struct RocksDbWorker<'a> {
    of: &'a RocksDb,
    batch: *mut rocksdb_writebatch_t,
    keys: Vec<[u8; KEY]>,
    starts: Vec<*const c_char>,
    lens: Vec<usize>,
    values: Vec<*mut rocksdb_pinnableslice_t>,
    errors: Vec<*mut c_char>,
}

impl Drop for RocksDbWorker<'_> {
    fn drop(&mut self) {
        // SAFETY: created with `self`, destroyed once.
        unsafe { rocksdb_writebatch_destroy(self.batch) }
    }
}

impl Worker for RocksDbWorker<'_> {
    fn put(&mut self, batch: &[Record]) -> Result<()> {
        let mut error = null_mut();
        // SAFETY: database, options and batch are live; keys and values are copied by the call.
        unsafe {
            rocksdb_writebatch_clear(self.batch);
            for record in batch {
                let (key, value) = (value::key(record.offset), value::value(record));
                let (k, v) = (key.as_ptr().cast(), value.as_ptr().cast());
                rocksdb_writebatch_put(self.batch, k, KEY, v, VALUE);
            }
            rocksdb_write(self.of.db, self.of.write, self.batch, &raw mut error);
        }
        check(error)
    }

    fn get(&mut self, batch: &[Record], answers: &mut Vec<RecordLocation>) -> Result<()> {
        self.keys.clear();
        self.keys.extend(batch.iter().map(|r| value::key(r.offset)));
        self.starts.clear();
        self.starts
            .extend(self.keys.iter().map(|k| k.as_ptr().cast()));
        self.lens.resize(batch.len(), KEY);
        self.values.clear();
        self.values.resize(batch.len(), null_mut());
        self.errors.clear();
        self.errors.resize(batch.len(), null_mut());
        let sorted = self.keys.is_sorted();
        // SAFETY: all lists have `batch.len()` places; the keys live for the call.
        unsafe {
            rocksdb_batched_multi_get_cf(
                self.of.db,
                self.of.read,
                self.of.family,
                batch.len(),
                self.starts.as_ptr(),
                self.lens.as_ptr(),
                self.values.as_mut_ptr(),
                self.errors.as_mut_ptr(),
                sorted,
            );
        }
        let mut done = Ok(());
        for (i, record) in batch.iter().enumerate() {
            // What is left of an error would leak otherwise; it ends the benchmark.
            done = done.and(check(self.errors[i]));
            let slice = self.values[i];
            if slice.is_null() {
                let lost = format!("rocksdb lost the record at {}", record.offset);
                done = done.and(Err(Failure::new(lost)));
                continue;
            }
            let mut len = 0;
            // SAFETY: the slice is live until it is destroyed, once, after its bytes were copied.
            let answer = unsafe {
                let bytes = rocksdb_pinnableslice_value(slice, &raw mut len);
                let answer = value::answer(std::slice::from_raw_parts(bytes.cast(), len));
                rocksdb_pinnableslice_destroy(slice);
                answer
            };
            match answer {
                Some(answer) => answers.push(answer),
                None => done = done.and(Err(Failure::new("rocksdb: a value has another length"))),
            }
        }
        done
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_put_is_found_after_a_flush_and_a_restart() {
        super::super::tests::round_trip("rocksdb");
    }
}
