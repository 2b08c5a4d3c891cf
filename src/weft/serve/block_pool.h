// BlockPool: who holds which block of a paged cache, and which full blocks are kept for prompts that begin alike.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace weft {

struct BlockPoolOptions {
  int64_t num_blocks = 0;
  int64_t block_tokens = 16;
  bool keeps_prefixes = true;
  int hash_bits = 64;  // fewer make contents collide, for tests
};

// A block is free, used (held at least once) or kept (nobody holds it, but it may be found again). A kept block is
// known by its tokens and by the block before it, so a chain of blocks is a prefix; tokens are compared, so that
// hashes that collide do no harm. Kept blocks are given away when none is free, the one that was let go first before
// the others.
//
// Who holds a block holds those before it in its chain, and lets them go last block first; so a chain is given away
// from its end.
class BlockPool {
 public:
  static constexpr int32_t kNone = INT32_MIN;

  explicit BlockPool(const BlockPoolOptions& options);

  // What stands before the first block of sequences with this adapter, by its number; 0: none.
  static int32_t root(int32_t adapter) { return -1 - adapter; }

  // A block that the caller then holds; kNone when all are used.
  int32_t take();
  // The block with these tokens [block_tokens] behind `parent`, a block or a root; the caller then holds it. kNone
  // when there is none.
  int32_t find(int32_t parent, std::span<const int32_t> tokens);
  // A block that the caller took is now full of these tokens: makes it known. When an equal one is known already, the
  // caller holds that one in its place. Returns the one that is held.
  int32_t keep(int32_t block, int32_t parent, std::span<const int32_t> tokens);
  void release(int32_t block);

  int64_t block_tokens() const { return options_.block_tokens; }
  bool keeps_prefixes() const { return options_.keeps_prefixes; }
  int64_t num_blocks() const { return options_.num_blocks; }
  int64_t num_free() const { return int64_t(free_.size()); }
  int64_t num_kept() const { return num_kept_; }
  int64_t num_used() const { return num_blocks() - num_free() - num_kept(); }
  int64_t num_available() const { return num_free() + num_kept(); }  // to take()
  int64_t num_used_known() const { return num_known_ - num_kept_; }  // of the used ones, those that can be found

 private:
  struct Block {
    int32_t holders = 0, children = 0;
    int32_t parent = kNone;                // kNone: the block is not known
    int32_t next = kNone;                  // in its bucket
    int32_t older = kNone, newer = kNone;  // among those that are kept
    uint64_t hash = 0;
  };
  uint64_t hash_of(int32_t parent, std::span<const int32_t> tokens) const;
  int32_t lookup(uint64_t hash, int32_t parent, std::span<const int32_t> tokens) const;
  int32_t& bucket(uint64_t hash) { return buckets_[hash & (buckets_.size() - 1)]; }
  void hold(int32_t block);
  void forget(int32_t block);
  void append_kept(int32_t block);
  void unlink_kept(int32_t block);

  BlockPoolOptions options_;
  std::vector<Block> blocks_;
  std::vector<int32_t> free_, buckets_;
  std::vector<int32_t> tokens_;  // [blocks, block_tokens], of the known ones
  int32_t oldest_ = kNone, newest_ = kNone;
  int64_t num_kept_ = 0, num_known_ = 0;
};

}  // namespace weft
