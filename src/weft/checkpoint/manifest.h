// Manifest: the list of a checkpoint's files with the digests of all their bytes; a checkpoint is valid when it
// agrees.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/checksum.h"

namespace weft {

// A run of bytes of a file with a digest of its own, so that damage can be named by tensor.
struct ManifestPiece {
  std::string name;  // a tensor's, kWholeFile or kTensorHeader
  uint64_t bytes = 0;
  Digest digest;
};
constexpr std::string_view kWholeFile = "(file)";
constexpr std::string_view kTensorHeader = "(header)";

struct ManifestFile {
  std::string name;                   // a plain name: no folder
  std::vector<ManifestPiece> pieces;  // follow each other from byte 0 to the end
  uint64_t bytes() const;
};

struct Manifest {
  int64_t step = 0;
  std::vector<ManifestFile> files;
  const ManifestFile* find(std::string_view name) const;
};

constexpr std::string_view kManifestName = "manifest.json";
constexpr int kManifestVersion = 1;

// JSON whose last member is the digest of everything before it: no flipped bit goes unseen.
std::string to_json_text(const Manifest& manifest);
// Throws Error naming `source` and what is damaged, unknown or unsafe (a file name that leaves the folder).
Manifest parse_manifest(std::string_view text, const std::string& source);

// The files alone, as JSON: how ranks tell rank 0 what they wrote.
std::string to_json_text(const std::vector<ManifestFile>& files);
std::vector<ManifestFile> parse_manifest_files(std::string_view text, const std::string& source);

bool is_plain_file_name(std::string_view name);

}  // namespace weft
