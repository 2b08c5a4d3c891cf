// How GGUF's metadata values lie in bytes: shared by the reader, the views it gives, and the writer.
#pragma once
#include <string>

#include "weft/formats/gguf.h"

namespace weft::gguf {

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kVersion = 3;  // version 2 differs from it only in that it has no big-endian files
constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr uint32_t kDefaultAlignment = 32;
constexpr uint32_t kMaxAlignment = 1 << 20;

// Limits of what is read and written. The format itself sets only those of keys and of dims.
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxNameBytes = 1024;  // of a tensor; ggml allows 63
constexpr uint64_t kMaxKeys = 1 << 16;
constexpr uint64_t kMaxTensors = 1 << 20;
constexpr uint64_t kMaxDims = 4;
constexpr uint64_t kMaxStringBytes = uint64_t(256) << 20;  // a whole tokenizer.json can be one string
constexpr uint64_t kMaxHeaderBytes = uint64_t(1) << 30;    // metadata and the table of tensors
constexpr int kMaxDepth = 4;                               // arrays in arrays
constexpr uint64_t kArrayHeaderBytes = 4 + 8;              // the elements' type and their number

// Bytes of a value of this type; 0 where that depends on the value.
uint64_t fixed_size(GgufType type);

// The type of this number, or Error: `where` has an unknown type.
GgufType checked_type(uint32_t number, const std::string& where);

// Bytes that the value at the start of `rest` takes, all of it checked; Error "WHERE ..." when anything is wrong.
uint64_t encoded_size(GgufType type, Bytes rest, const std::string& where, int depth = 0);

// A length and that many bytes, at the start of `rest`.
std::string_view encoded_string(Bytes rest, uint64_t max_bytes, const std::string& where);

uint64_t aligned(uint64_t offset, uint64_t alignment);  // for offsets of real files: far from wrapping

}  // namespace weft::gguf
