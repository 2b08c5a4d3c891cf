// From the pickle of a PyTorch checkpoint to its tensors.
#include "weft/formats/torch_file.h"

#include <algorithm>
#include <optional>

#include "weft/base/excerpt.h"
#include "weft/base/nearest.h"
#include "weft/formats/pickle.h"
#include "weft/formats/safetensors.h"

namespace weft {
namespace {

constexpr int kMaxDepth = 16;                  // dicts and lists inside each other
constexpr size_t kMaxTensorsOfFile = 1 << 17;  // the largest models have some ten thousand
constexpr size_t kMaxKeyBytes = 1 << 12;
constexpr uint64_t kMaxNamesBytes =
    64 << 20;  // of all names together: a pickle can say a long key once, and use it often
constexpr uint64_t kMaxVisits = 1 << 20;
constexpr size_t kMaxRankOfFile = 16;

struct StorageRow {
  std::string_view global, dtype_name;
  uint64_t element_size;
};
constexpr StorageRow kStorages[] = {
    {"torch DoubleStorage", "F64", 8},    {"torch FloatStorage", "F32", 4}, {"torch HalfStorage", "F16", 2},
    {"torch BFloat16Storage", "BF16", 2}, {"torch LongStorage", "I64", 8},  {"torch IntStorage", "I32", 4},
    {"torch ShortStorage", "I16", 2},     {"torch CharStorage", "I8", 1},   {"torch ByteStorage", "U8", 1},
    {"torch BoolStorage", "BOOL", 1},
};
constexpr std::string_view kOrderedDict = "collections OrderedDict", kSize = "torch Size";
constexpr std::string_view kTensor = "torch._utils _rebuild_tensor", kTensor2 = "torch._utils _rebuild_tensor_v2";
constexpr std::string_view kParameter = "torch._utils _rebuild_parameter";

const StorageRow* find_storage(std::string_view global) {
  const auto found =
      std::find_if(std::begin(kStorages), std::end(kStorages), [&](const auto& row) { return row.global == global; });
  return found == std::end(kStorages) ? nullptr : found;
}

bool is_allowed(std::string_view global) {
  constexpr std::string_view kFunctions[] = {kOrderedDict, kSize, kTensor, kTensor2, kParameter};
  return find_storage(global) ||
         std::find(std::begin(kFunctions), std::end(kFunctions), global) != std::end(kFunctions);
}

const PickleNode* node_of(const PickleValue& value, PickleNode::Kind kind) {
  PickleNode* const* node = std::get_if<PickleNode*>(&value);
  return node && (*node)->kind == kind ? *node : nullptr;
}

// The arguments of a call of `function`; null for all else.
const std::vector<PickleValue>* arguments_of(const PickleValue& value, std::string_view function) {
  const PickleNode* call = node_of(value, PickleNode::Kind::call);
  if (!call || call->function.name != function) return nullptr;
  return &node_of(call->operand, PickleNode::Kind::tuple)->items;
}

// A part of a name; cut where the name is refused anyway.
std::string key_text(const PickleValue& key) {
  if (const auto* text = std::get_if<std::string_view>(&key)) return std::string(text->substr(0, kMaxKeyBytes + 1));
  if (const auto* number = std::get_if<int64_t>(&key)) return fmt::format("{}", *number);
  return "?";
}

// Whether the elements of a tensor are inside a storage of `available`; with checked integers.
bool fits(const TorchEntry& entry, uint64_t available) {
  // Also with a dim of 0, so that every product of dims is a number of 63 bits.
  std::optional<uint64_t> numel = entry.element_size;
  for (const int64_t dim : entry.dims)
    numel = numel ? checked_mul(*numel, std::max<uint64_t>(uint64_t(dim), 1)) : numel;
  if (!numel || *numel > uint64_t(INT64_MAX)) return false;
  if (std::find(entry.dims.begin(), entry.dims.end(), 0) != entry.dims.end()) return entry.offset <= available;
  std::optional<uint64_t> last = entry.offset;
  for (size_t i = 0; i < entry.dims.size() && last; ++i) {
    const auto step = checked_mul(uint64_t(entry.dims[i] - 1), uint64_t(entry.strides[i]));
    last = step ? checked_add(*last, *step) : std::nullopt;
  }
  // An expanded view would take more memory than the file.
  return last && *last < available && *numel / entry.element_size <= available;
}

}  // namespace

DType TorchEntry::dtype() const {
  const auto found = safetensors_dtype(dtype_name);
  if (!found) throw Error("tensor '{}' has dtype {}, which weft does not compute with", name, dtype_name);
  return *found;
}

Shape TorchEntry::shape() const {
  if (dims.size() > size_t(Shape::kMaxRank)) {
    throw Error("tensor '{}' has {} dims; weft's have at most {}", name, dims.size(), Shape::kMaxRank);
  }
  return Shape(std::span<const int64_t>(dims));
}

uint64_t TorchEntry::numel() const {
  uint64_t numel = 1;
  for (const int64_t dim : dims) numel *= uint64_t(dim);
  return numel;
}

bool TorchEntry::is_contiguous() const {
  int64_t expected = 1;
  for (size_t i = dims.size(); i > 0; --i) {
    if (dims[i - 1] != 1 && strides[i - 1] != expected) return false;
    expected *= dims[i - 1];
  }
  return true;
}

// Walks through the objects of the pickle and collects their tensors.
class TorchReader {
 public:
  TorchReader(TorchFile& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}

  void read(const PickleValue& value, const std::string& name, int depth) {
    if (++visits_ > kMaxVisits) throw Error("{}: the pickle holds more than {} objects", file_.path(), kMaxVisits);
    if (name.size() > kMaxKeyBytes) {
      throw Error("{}: the name '{}...' has more than {} bytes", file_.path(), excerpt(name), kMaxKeyBytes);
    }
    if (depth > kMaxDepth)
      throw Error("{}: '{}' is nested deeper than {} levels", file_.path(), excerpt(name), kMaxDepth);
    if (const auto* parameter = arguments_of(value, kParameter)) {
      if (parameter->empty()) fail(name, "a parameter without a tensor");
      return read(parameter->front(), name, depth + 1);
    }
    const auto* arguments = arguments_of(value, kTensor2);
    if (!arguments) arguments = arguments_of(value, kTensor);
    if (arguments) return add_tensor(*arguments, name);
    PickleNode* const* node = std::get_if<PickleNode*>(&value);
    if (!node) return;
    if ((*node)->kind == PickleNode::Kind::dict || (*node)->kind == PickleNode::Kind::call) {
      read_pairs((*node)->items, name, depth);
      if (const auto* given = arguments_of(value, kOrderedDict)) read_given_pairs(*given, name, depth);
    } else if ((*node)->kind != PickleNode::Kind::persistent) {
      const auto& items = (*node)->items;
      for (size_t i = 0; i < items.size(); ++i) read(items[i], joined(name, fmt::format("{}", i)), depth + 1);
    }
  }

 private:
  [[noreturn]] void fail(const std::string& name, std::string_view what) const {
    throw Error("{}: tensor '{}': {}", file_.path(), excerpt(name), what);
  }
  static std::string joined(const std::string& name, std::string_view key) {
    return name.empty() ? std::string(key) : fmt::format("{}.{}", name, key);
  }

  void read_pairs(const std::vector<PickleValue>& items, const std::string& name, int depth) {
    for (size_t i = 0; i + 1 < items.size(); i += 2) read(items[i + 1], joined(name, key_text(items[i])), depth + 1);
  }
  // OrderedDict([(key, value), ...]), as Python 2 wrote it.
  void read_given_pairs(const std::vector<PickleValue>& arguments, const std::string& name, int depth) {
    const PickleNode* list = arguments.empty() ? nullptr : node_of(arguments[0], PickleNode::Kind::list);
    for (size_t i = 0; list && i < list->items.size(); ++i) {
      PickleNode* const* pair = std::get_if<PickleNode*>(&list->items[i]);
      if (!pair || (*pair)->items.size() != 2)
        throw Error("{}: '{}' is made of no pairs", file_.path(), excerpt(name));
      read_pairs((*pair)->items, name, depth);
    }
  }

  uint64_t unsigned_of(const PickleValue& value, const std::string& name) const {
    const auto* number = std::get_if<int64_t>(&value);
    if (!number || *number < 0) fail(name, "a dim, stride or offset is no integer of at least 0");
    return uint64_t(*number);
  }

  std::vector<int64_t> integers_of(const PickleValue& value, const std::string& name) const {
    const PickleNode* tuple = node_of(value, PickleNode::Kind::tuple);
    if (const auto* size = arguments_of(value, kSize)) {
      tuple = size->empty() ? nullptr : node_of(size->front(), PickleNode::Kind::tuple);
    }
    if (!tuple || tuple->items.size() > kMaxRankOfFile) fail(name, "its shape is no tuple of at most 16 dims");
    std::vector<int64_t> integers;
    for (const PickleValue& item : tuple->items) integers.push_back(int64_t(unsigned_of(item, name)));
    return integers;
  }

  // (storage, offset, size, stride, requires_grad, hooks, metadata): the last only of views that are computed lazily.
  void add_tensor(const std::vector<PickleValue>& arguments, const std::string& name) {
    if (arguments.size() < 4) fail(name, "it is not complete");
    if (arguments.size() > 6 && !std::holds_alternative<PickleNone>(arguments[6])) {
      fail(name, "it is a view that negates or conjugates what it shows: save a clone of it");
    }
    if (file_.entries_.size() >= kMaxTensorsOfFile)
      throw Error("{}: more than {} tensors", file_.path(), kMaxTensorsOfFile);
    if ((names_bytes_ += name.size()) > kMaxNamesBytes) {
      throw Error("{}: the names of its tensors have more than {} bytes", file_.path(), kMaxNamesBytes);
    }
    TorchEntry entry{.name = name};
    const uint64_t available = open_storage(arguments[0], entry);
    entry.offset = unsigned_of(arguments[1], name);
    entry.dims = integers_of(arguments[2], name);
    entry.strides = integers_of(arguments[3], name);
    if (entry.dims.size() != entry.strides.size()) fail(name, "it has not as many strides as dims");
    if (!fits(entry, available)) {
      fail(name, fmt::format("its elements are not all inside its storage, which has {}", available));
    }
    if (!file_.index_.emplace(name, file_.entries_.size()).second) fail(name, "it appears twice");
    file_.entries_.push_back(std::move(entry));
  }

  // ('storage', type, key, place, number of elements); gives that number.
  uint64_t open_storage(const PickleValue& value, TorchEntry& entry) {
    const PickleNode* reference = node_of(value, PickleNode::Kind::persistent);
    const PickleNode* tuple = reference ? node_of(reference->operand, PickleNode::Kind::tuple) : nullptr;
    if (!tuple || tuple->items.size() < 5) fail(entry.name, "it has no storage");
    const auto* type = std::get_if<PickleGlobal>(&tuple->items[1]);
    const StorageRow* row = type ? find_storage(type->name) : nullptr;
    if (!row) fail(entry.name, "its storage has no known type");
    const std::string key = key_text(tuple->items[2]);
    const ZipEntry* stored = file_.archive_.find(prefix_ + "data/" + key);
    if (!stored) fail(entry.name, fmt::format("the archive has no storage '{}'", excerpt(key, 40)));
    const uint64_t numel = unsigned_of(tuple->items[4], entry.name);
    if (checked_mul(numel, row->element_size) != stored->size) {
      fail(entry.name, fmt::format("its storage of {} {} has {} bytes", numel, row->dtype_name, stored->size));
    }
    entry.dtype_name = row->dtype_name, entry.element_size = row->element_size;
    entry.storage = size_t(stored - file_.archive_.entries().data());
    return numel;
  }

  TorchFile& file_;
  std::string prefix_;  // the archive's folder
  uint64_t visits_ = 0, names_bytes_ = 0;
};

namespace {

// The archive has one folder, named after the file it was saved to.
std::string folder_in(const ZipFile& archive) {
  for (const ZipEntry& entry : archive.entries()) {
    if (entry.name.ends_with("/data.pkl")) return entry.name.substr(0, entry.name.size() - 8);
  }
  throw Error("{} is an archive without data.pkl: PyTorch did not write it", archive.path());
}

ZipFile open_archive(const std::string& path, FileSystem& fs) {
  const MappedFile file(path, fs);
  if (!ZipFile::is_zip(file.bytes())) {
    throw Error("{} is not in the zip format of PyTorch 1.6 and later: load it with PyTorch and save it again", path);
  }
  return ZipFile(path, fs);
}

}  // namespace

TorchFile::TorchFile(const std::string& path, FileSystem& fs) : archive_(open_archive(path, fs)) {
  const std::string folder = folder_in(archive_);
  if (const ZipEntry* order = archive_.find(folder + "byteorder")) {
    if (text_of(archive_.bytes(*order)) != "little") throw Error("{} was written on a big-endian machine", path);
  }
  const ZipEntry* pickled = archive_.find(folder + "data.pkl");
  const Pickle pickle(archive_.bytes(*pickled), path, [](std::string_view global) { return is_allowed(global); });
  TorchReader(*this, folder).read(pickle.root(), "", 0);
}

const TorchEntry* TorchFile::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

const TorchEntry& TorchFile::at(const std::string& name) const {
  if (const TorchEntry* entry = find(name)) return *entry;
  std::vector<std::string> names;
  for (const TorchEntry& entry : entries_) names.push_back(entry.name);
  throw Error("{} has no tensor '{}'{}", path(), name, did_you_mean(name, names));
}

Bytes TorchFile::bytes(const TorchEntry& entry) const {
  check(entry.is_contiguous(), "tensor '{}' is not contiguous: read() it", entry.name);
  return archive_.bytes(archive_.entries()[entry.storage])
      .subspan(size_t(entry.offset * entry.element_size), size_t(entry.size()));
}

void TorchFile::read(const TorchEntry& entry, std::span<std::byte> into) const {
  check(into.size() == entry.size(), "tensor '{}' has {} bytes, not {}", entry.name, entry.size(), into.size());
  if (into.empty()) return;
  if (entry.is_contiguous()) {
    std::memcpy(into.data(), bytes(entry).data(), into.size());
    return;
  }
  const Bytes storage = archive_.bytes(archive_.entries()[entry.storage]);
  const size_t size = entry.element_size;
  // An odometer over all dims; `at` is the element that it points to.
  std::vector<int64_t> index(entry.dims.size(), 0);
  uint64_t at = entry.offset;
  for (size_t done = 0; done < into.size(); done += size) {
    std::memcpy(into.data() + done, storage.data() + at * size, size);
    for (size_t dim = index.size(); dim > 0; --dim) {
      at += uint64_t(entry.strides[dim - 1]);
      if (++index[dim - 1] < entry.dims[dim - 1]) break;
      at -= uint64_t(entry.strides[dim - 1]) * uint64_t(entry.dims[dim - 1]);
      index[dim - 1] = 0;
    }
  }
}

}  // namespace weft
