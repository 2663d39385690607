#include "heed/exchange/torch_file.h"

#include <array>
#include <functional>

#include "heed/exchange/bytes.h"
#include "heed/exchange/zip.h"

namespace heed {
namespace {

// The kinds of storages, by the ends of their names in Python.
struct Kind {
  const char* name;
  size_t size;
  float (*read)(const char*);
};
template <class T>
float as_float(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return static_cast<float>(value);
}
const Kind kKinds[] = {
    {"FloatStorage", 4, as_float<float>},
    {"DoubleStorage", 8, as_float<double>},
    {"HalfStorage", 2,
     [](const char* at) {
       uint16_t bits;
       std::memcpy(&bits, at, 2);
       return from_f16(bits);
     }},
    {"BFloat16Storage", 2,
     [](const char* at) {
       uint16_t bits;
       std::memcpy(&bits, at, 2);
       return from_bf16(bits);
     }},
    {"LongStorage", 8, as_float<int64_t>},
    {"IntStorage", 4, as_float<int32_t>},
    {"ShortStorage", 2, as_float<int16_t>},
    {"CharStorage", 1, as_float<int8_t>},
    {"ByteStorage", 1, as_float<uint8_t>},
    {"BoolStorage", 1, as_float<uint8_t>},
};

// What lies on the machine's stack; one refers to others by their numbers, so that none can hold
// itself.
struct Node {
  enum Type { none, number, text, sequence, dictionary, global, storage, tensor, mark } type = none;
  int64_t integer = 0;  // a number; of a storage its kind
  std::string text_value = {};
  std::vector<int> items = {};  // of a sequence; of a dictionary keys and values in turn
};

class Pickle {
 public:
  Pickle(Bytes& in) : in_(in) {}

  // Runs to the end of one pickle; the number of what it gives.
  int run();
  const Node& operator[](int i) const { return nodes_[static_cast<size_t>(i)]; }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    fail(in_.what(), ": ", why, "; heed reads tensors from a PyTorch file, and runs nothing in it");
  }
  int add(Node node) {
    if (nodes_.size() > kMostNodes) refuse("a pickle that does too much");
    nodes_.push_back(std::move(node));
    return static_cast<int>(nodes_.size()) - 1;
  }
  void push(Node node) { stack_.push_back(add(std::move(node))); }
  int pop() {
    if (stack_.empty()) refuse("a damaged pickle");
    const int top = stack_.back();
    stack_.pop_back();
    return top;
  }
  Node& at(int i) { return nodes_[static_cast<size_t>(i)]; }
  std::vector<int> to_mark() {
    std::vector<int> items;
    for (;;) {
      const int top = pop();
      if (at(top).type == Node::mark) break;
      items.push_back(top);
    }
    return {items.rbegin(), items.rend()};
  }
  void add_items(const std::vector<int>& items, Node::Type to) {
    if (stack_.empty() || at(stack_.back()).type != to) refuse("a damaged pickle");
    std::vector<int>& all = at(stack_.back()).items;
    all.insert(all.end(), items.begin(), items.end());
  }
  std::string line() {
    std::string out;
    for (char c; (c = in_.number<char>("a line")) != '\n';) out += c;
    return out;
  }
  void name_of(const std::string& module, const std::string& name);
  void reduce();
  void persistent();
  void remember(uint64_t place) {
    if (stack_.empty()) refuse("a damaged pickle");
    memo_[place] = stack_.back();
  }
  void recall(uint64_t place) {
    const auto found = memo_.find(place);
    if (found == memo_.end()) refuse("a damaged pickle");
    stack_.push_back(found->second);
  }

  static constexpr size_t kMostNodes = 1 << 22;
  Bytes& in_;
  std::vector<Node> nodes_;
  std::vector<int> stack_;
  std::map<uint64_t, int> memo_;
};

void Pickle::name_of(const std::string& module, const std::string& name) {
  const std::string full = module + "." + name;
  const bool container = full == "collections.OrderedDict";
  const bool builder =
      full == "torch._utils._rebuild_tensor_v2" || full == "torch._utils._rebuild_parameter";
  for (size_t i = 0; i < std::size(kKinds); ++i)
    if (module == "torch" && name == kKinds[i].name)
      return push({Node::global, static_cast<int64_t>(i), full});
  if (!container && !builder) refuse("it wants '" + full + "'");
  push({Node::global, -1, full});
}

void Pickle::reduce() {
  const Node arguments = at(pop()), function = at(pop());
  if (function.type != Node::global || arguments.type != Node::sequence) refuse("a damaged pickle");
  if (function.text_value == "collections.OrderedDict") return push({Node::dictionary});
  if (function.text_value == "torch._utils._rebuild_parameter" && !arguments.items.empty()) {
    stack_.push_back(arguments.items[0]);
    return;
  }
  // storage, offset, sizes, strides, and what does not matter here
  const std::vector<int>& a = arguments.items;
  if (function.text_value != "torch._utils._rebuild_tensor_v2" || a.size() < 4 ||
      at(a[0]).type != Node::storage || at(a[1]).type != Node::number ||
      at(a[2]).type != Node::sequence || at(a[3]).type != Node::sequence)
    refuse("a damaged tensor");
  push({Node::tensor, 0, {}, {a[0], a[1], a[2], a[3]}});
}

// ('storage', the kind, its key, its device, how many elements)
void Pickle::persistent() {
  const Node id = at(pop());
  const std::vector<int>& a = id.items;
  if (id.type != Node::sequence || a.size() < 5 || at(a[0]).text_value != "storage" ||
      at(a[1]).type != Node::global || at(a[1]).integer < 0 || at(a[2]).type != Node::text)
    refuse("a damaged storage");
  push({Node::storage, at(a[1]).integer, at(a[2]).text_value});
}

int Pickle::run() {
  stack_.clear();
  memo_.clear();
  for (;;) {
    const auto op = in_.number<uint8_t>("a pickle");
    switch (op) {
      case 0x80: in_.number<uint8_t>("a pickle"); break;   // PROTO
      case 0x95: in_.number<uint64_t>("a pickle"); break;  // FRAME
      case '.': return pop();
      case '(': push({Node::mark}); break;
      case 'N': push({Node::none}); break;
      case 0x88: push({Node::number, 1}); break;
      case 0x89: push({Node::number, 0}); break;
      case 'J': push({Node::number, in_.number<int32_t>("a number")}); break;
      case 'K': push({Node::number, in_.number<uint8_t>("a number")}); break;
      case 'M': push({Node::number, in_.number<uint16_t>("a number")}); break;
      case 'G': in_.number<uint64_t>("a number"), push({Node::none}); break;
      case 0x8a: {  // LONG1
        const std::string_view raw = in_.take(in_.number<uint8_t>("a number"), "a number");
        uint64_t value = raw.empty() || !(raw.back() & 0x80) ? 0 : ~uint64_t{0};
        for (size_t i = 0; i < std::min<size_t>(raw.size(), 8); ++i)
          value = (value & ~(uint64_t{0xFF} << (8 * i))) | uint64_t(uint8_t(raw[i])) << (8 * i);
        push({Node::number, static_cast<int64_t>(value), std::string(raw)});
        break;
      }
      case 'X':  // BINUNICODE
        push({Node::text, 0, std::string(in_.take(in_.number<uint32_t>("a text"), "a text"))});
        break;
      case 0x8c:
      case 'U':  // of one byte's length
        push({Node::text, 0, std::string(in_.take(in_.number<uint8_t>("a text"), "a text"))});
        break;
      case '}': push({Node::dictionary}); break;
      case ']':
      case ')': push({Node::sequence}); break;
      case 't':
      case 'l': push({Node::sequence, 0, {}, to_mark()}); break;
      case 'd': push({Node::dictionary, 0, {}, to_mark()}); break;
      case 0x85:
      case 0x86:
      case 0x87: {
        std::vector<int> items(op - 0x84u);
        for (size_t i = items.size(); i-- > 0;) items[i] = pop();
        push({Node::sequence, 0, {}, items});
        break;
      }
      case 'a': {
        const int item = pop();
        add_items({item}, Node::sequence);
        break;
      }
      case 'e': add_items(to_mark(), Node::sequence); break;
      case 's': {
        const int value = pop(), key = pop();
        add_items({key, value}, Node::dictionary);
        break;
      }
      case 'u': add_items(to_mark(), Node::dictionary); break;
      case 'q': remember(in_.number<uint8_t>("a pickle")); break;
      case 'r': remember(in_.number<uint32_t>("a pickle")); break;
      case 0x94: remember(memo_.size()); break;
      case 'h': recall(in_.number<uint8_t>("a pickle")); break;
      case 'j': recall(in_.number<uint32_t>("a pickle")); break;
      case 'c': {
        const std::string module = line();
        name_of(module, line());
        break;
      }
      case 0x93: {  // STACK_GLOBAL
        const std::string name = at(pop()).text_value, module = at(pop()).text_value;
        name_of(module, name);
        break;
      }
      case 'R': reduce(); break;
      case 'b': pop(); break;  // BUILD: what is set on a container is of no matter
      case '0': pop(); break;
      case 'Q': persistent(); break;
      default: refuse("its pickle has operation " + std::to_string(int{op}));
    }
  }
}

using Storages = std::function<std::string(const std::string& key, const Kind& kind)>;

Arrays tensors(const Pickle& pickle, int root, const Storages& storages, const std::string& what) {
  require(pickle[root].type == Node::dictionary, what, ": has no tensors by name");
  std::map<std::string, std::string> held;
  Arrays out;
  int64_t elements = 0, room = 0;  // of all tensors; four may share the numbers of one
  const std::vector<int>& items = pickle[root].items;
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    const Node &key = pickle[items[i]], &value = pickle[items[i + 1]];
    if (key.type != Node::text || value.type != Node::tensor) continue;
    const Node& storage = pickle[value.items[0]];
    const Kind& kind = kKinds[storage.integer];
    auto data = held.find(storage.text_value);
    if (data == held.end()) {
      data = held.emplace(storage.text_value, storages(storage.text_value, kind)).first;
      room += 4 * std::ssize(data->second);
    }
    const std::string where = what + ": '" + key.text_value + "'";
    const auto numbers = [&](int list) {
      std::vector<int64_t> all;
      for (const int n : pickle[list].items) {
        require(pickle[n].type == Node::number, where, " is damaged");
        all.push_back(pickle[n].integer);
      }
      return all;
    };
    Array array{numbers(value.items[2]), {}};
    const std::vector<int64_t> strides = numbers(value.items[3]);
    require(strides.size() == array.shape.size() && strides.size() <= 8, where, " is damaged");
    const int64_t count = elements_of(array.shape, data->second.size(), where),
                  has = static_cast<int64_t>(data->second.size() / kind.size);
    elements += count;
    require(elements <= room, where, " and those before it have more elements than the file holds");
    const int64_t offset = pickle[value.items[1]].integer;
    require(offset >= 0 && offset <= has, where, " begins beyond its numbers");
    int64_t last = offset;
    for (size_t d = 0; d < strides.size(); ++d) {
      require(strides[d] >= 0 && strides[d] <= has, where, " has a stride of ", strides[d]);
      if (count > 0) last += (array.shape[d] - 1) * strides[d];
    }
    require(count == 0 || last < has, where, ": is cut short: it wants ", last + 1,
            " numbers, there are ", has);
    array.values.resize(static_cast<size_t>(count));
    std::vector<int64_t> at(strides.size(), 0);
    for (size_t n = 0; n < array.values.size(); ++n) {
      int64_t from = offset;
      for (size_t d = 0; d < at.size(); ++d) from += at[d] * strides[d];
      array.values[n] = kind.read(data->second.data() + static_cast<size_t>(from) * kind.size);
      for (size_t d = at.size(); d-- > 0;) {
        if (++at[d] < array.shape[d]) break;
        at[d] = 0;
      }
    }
    out[key.text_value] = std::move(array);
  }
  require(!out.empty(), what, ": has no tensors by name");
  return out;
}

// A pickle of weights is short: names and shapes.
void want_short(uint64_t bytes, const std::string& what) {
  constexpr uint64_t kMost = 16 << 20;
  require(bytes <= kMost, what, ": its pickle has ", bytes, " bytes; one of weights is short");
}

Arrays from_zip(std::string_view bytes, const std::string& what) {
  const Zip zip(bytes, what);
  std::string folder;
  for (const std::string& name : zip.names())
    if (name.ends_with("/data.pkl")) folder = name.substr(0, name.size() - 8);
  require(!folder.empty(), what, ": a zip archive without data.pkl; not PyTorch's");
  const std::string program = zip.read(folder + "data.pkl");
  want_short(program.size(), what);
  Bytes in(program, what);
  Pickle pickle(in);
  const int root = pickle.run();
  return tensors(
      pickle, root,
      [&](const std::string& key, const Kind&) { return zip.read(folder + "data/" + key); }, what);
}

// A pickled magic number, one of the version, one about the system, the object, a list of keys;
// then for each key its number of elements and the numbers.
Arrays from_legacy(std::string_view bytes, const std::string& what) {
  Bytes in(bytes, what);
  Pickle before(in);
  for (int i = 0; i < 3; ++i) before.run();
  const uint64_t begin = in.at();
  Pickle pickle(in);
  const int root = pickle.run();
  want_short(in.at() - begin, what);
  Pickle list(in);
  const Node keys = list[list.run()];
  std::map<std::string, uint64_t> places;
  // A storage's kind tells how many bytes an element has: those of the tensors.
  std::map<std::string, size_t> sizes;
  const std::vector<int>& items = pickle[root].items;
  for (size_t i = 0; i + 1 < items.size(); i += 2)
    if (const Node& value = pickle[items[i + 1]]; value.type == Node::tensor) {
      const Node& storage = pickle[value.items[0]];
      sizes[storage.text_value] = kKinds[storage.integer].size;
    }
  std::map<std::string, std::string> all;
  for (const int key : keys.items) {
    const std::string& name = list[key].text_value;
    const auto count = in.number<uint64_t>("a storage");
    const auto size = sizes.find(name);
    require(size != sizes.end(), what, ": has a storage that no tensor uses");
    require(count <= in.left(), what, ": is cut short: a storage of ", count, " elements");
    all[name] = std::string(in.take(count * size->second, "a storage"));
  }
  return tensors(
      pickle, root,
      [&](const std::string& key, const Kind&) {
        require(all.contains(key), what, ": has no storage '", key, "'");
        return all[key];
      },
      what);
}

}  // namespace

Arrays parse_torch(std::string_view bytes, const std::string& what) {
  if (is_zip(bytes)) return from_zip(bytes, what);
  constexpr std::string_view kMagic("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e",
                                    15);
  require(bytes.starts_with(kMagic), what, ": not a file of PyTorch's (torch.save)");
  return from_legacy(bytes, what);
}

}  // namespace heed
