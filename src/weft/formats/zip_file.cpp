// The directory of a zip archive, distrusted. Source of the layout: PKWARE's APPNOTE.TXT, sections 4.3 and 4.5.
#include "weft/formats/zip_file.h"

#include <algorithm>

#include "weft/base/excerpt.h"

namespace weft {
namespace {

constexpr uint32_t kLocalSignature = 0x04034b50, kEntrySignature = 0x02014b50, kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50, kLocator64Signature = 0x07064b50;
constexpr uint64_t kLocalBytes = 30, kEntryBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocator64Bytes = 20;
constexpr uint64_t kMaxCommentBytes = 65535, kMaxEntries = 1 << 20;
constexpr uint16_t kEncrypted = 1, kZip64Extra = 1;

// Fields at fixed offsets of a range whose size is known.
template <class T>
T field(Bytes bytes, size_t offset) {
  return load_le<T>(bytes.data() + offset);
}

// Takes the 64-bit values of an entry's extra fields that stand for those which are all ones, in their order.
void read_zip64_extra(Bytes extra, std::initializer_list<uint64_t*> values, const std::string& where) {
  while (extra.size() >= 4) {
    const uint16_t kind = field<uint16_t>(extra, 0), size = field<uint16_t>(extra, 2);
    if (size > extra.size() - 4) break;
    Bytes content = extra.subspan(4, size);
    extra = extra.subspan(4 + size_t(size));
    if (kind != kZip64Extra) continue;
    for (uint64_t* value : values) {
      if (*value != UINT32_MAX) continue;
      if (content.size() < 8) throw Error("{} has a zip64 field that was cut short", where);
      *value = field<uint64_t>(content, 0);
      content = content.subspan(8);
    }
    return;
  }
  if (std::any_of(values.begin(), values.end(), [](const uint64_t* value) { return *value == UINT32_MAX; })) {
    throw Error("{} has no zip64 field, which its sizes refer to", where);
  }
}

}  // namespace

bool ZipFile::is_zip(Bytes begin_of_file) {
  return begin_of_file.size() >= 4 && field<uint32_t>(begin_of_file, 0) == kLocalSignature;
}

ZipFile::ZipFile(const std::string& path, FileSystem& fs) : file_(path, fs) {
  const Directory directory = find_directory();
  file_.range(directory.begin, directory.size, "the directory of the archive");
  if (directory.num_entries > kMaxEntries || directory.num_entries > directory.size / kEntryBytes) {
    throw Error("{}: the archive would have {} entries, more than its directory of {} bytes holds", path,
                directory.num_entries, directory.size);
  }
  uint64_t at = directory.begin;
  for (uint64_t i = 0; i < directory.num_entries; ++i) {
    at = read_entry(at, directory.begin + directory.size, directory.begin);
  }
  std::sort(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  check_layout();
}

// The end record is the last one whose comment reaches exactly to the end of the file.
ZipFile::Directory ZipFile::find_directory() const {
  const Bytes bytes = file_.bytes();
  const uint64_t last = bytes.size() >= kEndBytes ? bytes.size() - kEndBytes : 0;
  for (uint64_t back = 0; bytes.size() >= kEndBytes && back <= std::min(last, kMaxCommentBytes); ++back) {
    const Bytes end = bytes.subspan(size_t(last - back));
    if (field<uint32_t>(end, 0) != kEndSignature || field<uint16_t>(end, 20) != back) continue;
    const uint64_t at = last - back;
    if (at >= kLocator64Bytes && field<uint32_t>(bytes, size_t(at - kLocator64Bytes)) == kLocator64Signature) {
      return read_zip64_end(at - kLocator64Bytes);
    }
    if (field<uint16_t>(end, 8) != field<uint16_t>(end, 10)) break;  // a part of an archive on several disks
    return {field<uint32_t>(end, 16), field<uint32_t>(end, 12), field<uint16_t>(end, 10)};
  }
  throw Error("{} has no end record: this is no zip archive, or it was cut short", path());
}

ZipFile::Directory ZipFile::read_zip64_end(uint64_t locator) const {
  const uint64_t at = field<uint64_t>(file_.bytes(), size_t(locator + 8));
  const Bytes end = file_.range(at, kEnd64Bytes, "the zip64 end record");
  if (field<uint32_t>(end, 0) != kEnd64Signature) throw Error("{}: the zip64 end record is damaged", path());
  return {field<uint64_t>(end, 48), field<uint64_t>(end, 40), field<uint64_t>(end, 32)};
}

// Gives the place of the next entry.
uint64_t ZipFile::read_entry(uint64_t at, uint64_t directory_end, uint64_t directory_begin) {
  const Bytes rest = file_.bytes().subspan(size_t(at), size_t(directory_end - at));
  if (rest.size() < kEntryBytes || field<uint32_t>(rest, 0) != kEntrySignature) {
    throw Error("{}: entry {} of the archive's directory is damaged", path(), entries_.size() + 1);
  }
  const uint64_t name_bytes = field<uint16_t>(rest, 28), extra_bytes = field<uint16_t>(rest, 30);
  const uint64_t whole = kEntryBytes + name_bytes + extra_bytes + field<uint16_t>(rest, 32);
  if (whole > rest.size())
    throw Error("{}: entry {} of the archive's directory is cut short", path(), entries_.size() + 1);
  ZipEntry entry{.name = std::string(text_of(rest.subspan(kEntryBytes, name_bytes)))};
  const std::string where = fmt::format("{}: entry '{}'", path(), excerpt(entry.name));
  uint64_t compressed = field<uint32_t>(rest, 20), offset = field<uint32_t>(rest, 42);
  entry.size = field<uint32_t>(rest, 24);
  read_zip64_extra(rest.subspan(kEntryBytes + name_bytes, extra_bytes), {&entry.size, &compressed, &offset}, where);
  if (field<uint16_t>(rest, 8) & kEncrypted) throw Error("{} is encrypted", where);
  if (field<uint16_t>(rest, 10) != 0 || compressed != entry.size) {
    throw Error("{} is compressed; PyTorch stores its entries as they are: save the file again", where);
  }
  const Bytes local = file_.range(offset, kLocalBytes, entry.name);
  const uint64_t local_name_bytes = field<uint16_t>(local, 26), local_extra_bytes = field<uint16_t>(local, 28);
  if (field<uint32_t>(local, 0) != kLocalSignature ||
      text_of(file_.range(offset + kLocalBytes, local_name_bytes, entry.name)) != entry.name) {
    throw Error("{} is not where the archive's directory says", where);
  }
  entry.begin = offset + kLocalBytes + local_name_bytes + local_extra_bytes;
  if (entry.begin > directory_begin || entry.size > directory_begin - entry.begin) {
    throw Error("{} has {} bytes from byte {}, which reach into the archive's directory", where, entry.size,
                entry.begin);
  }
  entries_.push_back(std::move(entry));
  return at + whole;
}

void ZipFile::check_layout() const {
  std::vector<const ZipEntry*> order;
  for (const ZipEntry& entry : entries_) {
    if (!order.empty() && order.back()->name == entry.name) {
      throw Error("{}: the entry '{}' appears twice", path(), excerpt(entry.name));
    }
    order.push_back(&entry);
  }
  std::sort(order.begin(), order.end(),
            [](const auto* a, const auto* b) { return std::tie(a->begin, a->size) < std::tie(b->begin, b->size); });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i]->begin < order[i - 1]->begin + order[i - 1]->size) {
      throw Error("{}: the entries '{}' and '{}' overlap", path(), excerpt(order[i - 1]->name),
                  excerpt(order[i]->name));
    }
  }
}

const ZipEntry* ZipFile::find(std::string_view name) const {
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const ZipEntry& entry, std::string_view wanted) { return entry.name < wanted; });
  return found != entries_.end() && found->name == name ? &*found : nullptr;
}

Bytes ZipFile::bytes(const ZipEntry& entry) const {
  return file_.bytes().subspan(size_t(entry.begin), size_t(entry.size));
}

}  // namespace weft
