// The manifest's text and its own checksum.
#include "weft/checkpoint/manifest.h"

#include <nlohmann/json.hpp>

#include <charconv>

#include "weft/base/error.h"
#include "weft/base/json.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "weft checkpoint";
constexpr JsonLimits kLimits{.max_bytes = uint64_t(256) << 20, .max_depth = 8};

Json json_of(const std::vector<ManifestFile>& files) {
  Json list = Json::array();
  for (const ManifestFile& file : files) {
    Json pieces = Json::array();
    for (const ManifestPiece& piece : file.pieces) {
      pieces.push_back({{"name", piece.name}, {"bytes", piece.bytes}, {"xxh128", piece.digest.to_hex()}});
    }
    list.push_back({{"name", file.name}, {"bytes", file.bytes()}, {"pieces", std::move(pieces)}});
  }
  return list;
}

std::string text_of_json(const Json& json) { return json.dump(1, ' ', false, Json::error_handler_t::replace); }

// What stands after the text that `digest` covers.
std::string tail_of(const Digest& digest) { return fmt::format(",\n \"checksum\": \"{}\"\n}}\n", digest.to_hex()); }

Digest parse_digest(const JsonView& value, const std::string& source) {
  const std::string hex = value.string();
  Digest digest;
  for (size_t i = 0; hex.size() == 32 && i < 16; ++i) {
    const auto [end, error] = std::from_chars(hex.data() + 2 * i, hex.data() + 2 * i + 2, digest.value[i], 16);
    (void)end, (void)error;
  }
  if (digest.to_hex() != hex) throw Error("{}: {} must be 32 hexadecimal digits", source, value.path());
  return digest;
}

std::vector<ManifestFile> parse_files(const JsonView& list, const std::string& source) {
  std::vector<ManifestFile> files;
  for (int64_t i = 0; i < list.size(); ++i) {
    const JsonView item = list.at(i), pieces = item.at("pieces");
    ManifestFile file{.name = item.at("name").string()};
    if (!is_plain_file_name(file.name)) throw Error("{}: '{}' is not a plain file name", source, file.name);
    uint64_t total = 0;
    for (int64_t j = 0; j < pieces.size(); ++j) {
      const JsonView piece = pieces.at(j);
      const auto bytes = uint64_t(piece.at("bytes").integer(0));
      const auto sum = checked_add(total, bytes);
      if (!sum) throw Error("{}: the sizes of {} do not fit 64 bits", source, file.name);
      total = *sum;
      file.pieces.push_back({piece.at("name").string(), bytes, parse_digest(piece.at("xxh128"), source)});
    }
    if (uint64_t(item.at("bytes").integer(0)) != total) {
      throw Error("{}: the pieces of {} have {} bytes together, not {}", source, file.name, total,
                  item.at("bytes").integer());
    }
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace

bool is_plain_file_name(std::string_view name) {
  constexpr size_t kLongest = 255;
  return !name.empty() && name.size() <= kLongest && name.front() != '.' && name != kManifestName &&
         name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

uint64_t ManifestFile::bytes() const {
  uint64_t total = 0;
  for (const ManifestPiece& piece : pieces) total += piece.bytes;
  return total;
}

const ManifestFile* Manifest::find(std::string_view name) const {
  for (const ManifestFile& file : files) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

std::string to_json_text(const std::vector<ManifestFile>& files) { return text_of_json(json_of(files)); }

std::vector<ManifestFile> parse_manifest_files(std::string_view text, const std::string& source) {
  const JsonDocument document = JsonDocument::parse(text, source, kLimits);
  return parse_files(document.root(), source);
}

std::string to_json_text(const Manifest& manifest) {
  Json json;
  json["format"] = kFormat;
  json["version"] = kManifestVersion;
  json["step"] = manifest.step;
  json["files"] = json_of(manifest.files);
  std::string text = text_of_json(json);
  text.resize(text.size() - 2);  // "\n}"
  return text + tail_of(digest_of(bytes_of(text)));
}

Manifest parse_manifest(std::string_view text, const std::string& source) {
  const size_t tail_size = tail_of({}).size();
  const bool is_long_enough = text.size() > tail_size;
  const std::string_view body = text.substr(0, is_long_enough ? text.size() - tail_size : 0);
  if (!is_long_enough || text.substr(body.size()) != tail_of(digest_of(bytes_of(body)))) {
    throw Error("{}: the manifest does not agree with its own checksum: it is damaged or was cut short", source);
  }
  const JsonDocument document = JsonDocument::parse(text, source, kLimits);
  const JsonView root = document.root();
  if (root.at("format").string() != kFormat) throw Error("{}: this is not the manifest of a checkpoint", source);
  if (const int64_t version = root.at("version").integer(); version != kManifestVersion) {
    throw Error("{}: written in version {} of the format, this weft reads version {}", source, version,
                kManifestVersion);
  }
  return {.step = root.at("step").integer(0), .files = parse_files(root.at("files"), source)};
}

}  // namespace weft
