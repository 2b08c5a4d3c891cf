// BlockPool: a stack of free blocks, a hash table of known ones, a list of kept ones by age.
#include "weft/serve/block_pool.h"

#include <algorithm>
#include <bit>

#include "weft/base/error.h"

namespace weft {

BlockPool::BlockPool(const BlockPoolOptions& options) : options_(options) {
  if (options.num_blocks < 1 || options.block_tokens < 1)
    throw UsageError("a cache of {} blocks of {} tokens holds nothing: at least one of each is needed",
                     options.num_blocks, options.block_tokens);
  const auto count = size_t(options.num_blocks);
  blocks_.resize(count);
  free_.reserve(count);
  for (int64_t i = options.num_blocks; i-- > 0;) free_.push_back(int32_t(i));
  if (!options.keeps_prefixes) return;
  buckets_.assign(std::bit_ceil(count), kNone);
  tokens_.resize(count * size_t(options.block_tokens));
}

uint64_t BlockPool::hash_of(int32_t parent, std::span<const int32_t> tokens) const {
  constexpr uint64_t kPrime = 0x9E3779B97F4A7C15u;
  uint64_t hash = uint64_t(uint32_t(parent)) * kPrime;
  for (const int32_t token : tokens) {
    hash = (hash ^ uint32_t(token)) * kPrime;
    hash ^= hash >> 29;
  }
  return options_.hash_bits < 64 ? hash & ((uint64_t(1) << options_.hash_bits) - 1) : hash;
}

int32_t BlockPool::lookup(uint64_t hash, int32_t parent, std::span<const int32_t> tokens) const {
  for (int32_t at = buckets_[hash & (buckets_.size() - 1)]; at != kNone; at = blocks_[size_t(at)].next) {
    const Block& block = blocks_[size_t(at)];
    if (block.hash != hash || block.parent != parent) continue;
    if (std::equal(tokens.begin(), tokens.end(), tokens_.begin() + at * options_.block_tokens)) return at;
  }
  return kNone;
}

int32_t BlockPool::take() {
  int32_t block = kNone;
  if (!free_.empty()) {
    block = free_.back();
    free_.pop_back();
  } else if (oldest_ != kNone) {
    block = oldest_;
    unlink_kept(block);
    forget(block);
  } else {
    return kNone;
  }
  blocks_[size_t(block)].holders = 1;
  return block;
}

int32_t BlockPool::find(int32_t parent, std::span<const int32_t> tokens) {
  if (!options_.keeps_prefixes) return kNone;
  const int32_t block = lookup(hash_of(parent, tokens), parent, tokens);
  if (block != kNone) hold(block);
  return block;
}

int32_t BlockPool::keep(int32_t block, int32_t parent, std::span<const int32_t> tokens) {
  if (!options_.keeps_prefixes) return block;
  Block& b = blocks_[size_t(block)];
  check(b.holders == 1 && b.parent == kNone, "block {} is known already", block);
  const uint64_t hash = hash_of(parent, tokens);
  if (const int32_t equal = lookup(hash, parent, tokens); equal != kNone) {
    hold(equal);
    release(block);
    return equal;
  }
  b.hash = hash, b.parent = parent;
  b.next = bucket(hash);
  bucket(hash) = block;
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + block * options_.block_tokens);
  if (parent >= 0) ++blocks_[size_t(parent)].children;
  ++num_known_;
  return block;
}

void BlockPool::release(int32_t block) {
  Block& b = blocks_[size_t(block)];
  check(b.holders > 0, "block {} is released, but nobody holds it", block);
  if (--b.holders > 0) return;
  if (b.parent == kNone)
    free_.push_back(block);
  else
    append_kept(block);
}

void BlockPool::hold(int32_t block) {
  if (blocks_[size_t(block)].holders++ == 0) unlink_kept(block);
}

void BlockPool::forget(int32_t block) {
  Block& b = blocks_[size_t(block)];
  check(b.children == 0, "block {} is given away before those behind it", block);
  if (b.parent >= 0) --blocks_[size_t(b.parent)].children;
  int32_t* at = &bucket(b.hash);
  while (*at != block) at = &blocks_[size_t(*at)].next;
  *at = b.next;
  b.parent = b.next = kNone;
  --num_known_;
}

void BlockPool::append_kept(int32_t block) {
  Block& b = blocks_[size_t(block)];
  b.older = newest_, b.newer = kNone;
  (newest_ == kNone ? oldest_ : blocks_[size_t(newest_)].newer) = block;
  newest_ = block;
  ++num_kept_;
}

void BlockPool::unlink_kept(int32_t block) {
  const Block& b = blocks_[size_t(block)];
  (b.older == kNone ? oldest_ : blocks_[size_t(b.older)].newer) = b.newer;
  (b.newer == kNone ? newest_ : blocks_[size_t(b.newer)].older) = b.older;
  --num_kept_;
}

}  // namespace weft
