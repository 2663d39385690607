#include "heed/attention/kv_cache.h"

#include <algorithm>

#include "heed/ops/into.h"

namespace heed {
namespace {

// Positions at first. Doubled, it never becomes a power of two: rows that far apart would share few
// sets of a cache.
constexpr int64_t kPositions = 24;

void check_rows(std::span<const Id> from, int64_t rows) {
  for (const Id i : from)
    require(i >= 0 && i < rows, "key/value cache: sentence ", i, " of ", rows);
}

// The first rows of x [.., G, capacity, n].
Tensor first_rows(const Tensor& x, int64_t rows) {
  Shape shape = x.shape();
  shape[0] = rows;
  return x.view(shape, x.strides());
}

std::vector<Id> chosen(std::span<const Id> values, std::span<const Id> from) {
  std::vector<Id> out;
  for (const Id i : from) out.push_back(values[static_cast<size_t>(i)]);
  return out;
}

std::vector<Id> all_ids(const Tensor& x) { return {x.data<Id>(), x.data<Id>() + x.count()}; }

// Are these whole groups of rows, in their order?
bool are_groups(std::span<const Id> rows, int64_t group) {
  for (size_t i = 0; i < rows.size(); ++i)
    if (const int64_t place = static_cast<int64_t>(i) % group;
        rows[i] % group != place || (place > 0 && rows[i] != rows[i - 1] + 1))
      return false;
  return std::ssize(rows) % group == 0;
}

}  // namespace

KeyValueCache::KeyValueCache(int64_t capacity, int64_t rows)
    : lengths_(static_cast<size_t>(rows), 0),
      fixed_(capacity),
      arena_(current_arena().shared_from_this()) {}

int64_t KeyValueCache::length() const {
  return lengths_.empty() ? 0 : *std::ranges::max_element(lengths_);
}

// New memory for keys and values like these.
void KeyValueCache::make_room(int64_t rows, const Tensor& keys, const Tensor& values,
                              int64_t capacity) {
  const UseArena use(arena_ ? *arena_ : current_arena());
  keys_ = Tensor({rows, keys.size(1), capacity, keys.size(3)}, keys.type());
  values_ = Tensor({rows, values.size(1), capacity, values.size(3)}, values.type());
}

// Larger memory, with what is in `before`.
void KeyValueCache::move_to(const KeyValueCache& before, int64_t rows, int64_t capacity) {
  make_room(rows, before.keys_, before.values_, capacity);
  move_rows(std::vector{before.keys_, before.values_}, std::vector{keys_, values_},
            in_order(before.rows()), before.lengths_);
}

void KeyValueCache::append(const KeysValues& more, const std::optional<Tensor>& at) {
  const NoTape off;
  const Tensor &k = more.keys.k, &v = more.values;
  const int64_t B = k.size(0), length = this->length() + k.size(2);
  if (lengths_.empty()) lengths_.assign(static_cast<size_t>(B), 0);
  if (!keys_.defined()) make_room(B, k, v, fixed_ ? fixed_ : std::max(kPositions, length));
  require(B == rows() && k.size(1) == keys_.size(1) && k.size(3) == keys_.size(3),
          "key/value cache: holds keys [", rows(), ", ", keys_.size(1), ", ", this->length(), ", ",
          keys_.size(3), "], given ", k.shape());
  require(v.size(0) == B && v.size(1) == values_.size(1) && v.size(2) == k.size(2) &&
              v.size(3) == values_.size(3),
          "key/value cache: holds values [", rows(), ", ", values_.size(1), ", ", this->length(),
          ", ", values_.size(3), "], given ", v.shape(), " for keys ", k.shape());
  if (length > keys_.size(2)) {
    require(fixed_ == 0, "key/value cache: a capacity of ", fixed_, " positions, given ", length);
    move_to(KeyValueCache(*this), keys_.size(0), std::max(length, 2 * keys_.size(2)));
  }
  const Tensor where = at ? *at : ids(lengths_, {B});
  append_rows(std::vector{k, v}, std::vector{keys_, values_}, where);
  for (Id& row : lengths_) row += static_cast<Id>(k.size(2));
}

KeysValues KeyValueCache::as_they_lie() const {
  require(length() > 0, "key/value cache: nothing has been added yet");
  const NoTape off;
  const Tensor k = first_rows(keys_, rows()), v = first_rows(values_, rows());
  if (fixed_) return {{k}, v};
  const auto origins = origins_ ? std::optional(*origins_) : std::nullopt;
  return {{slice(k, 2, 0, length()), origins}, slice(v, 2, 0, length())};
}

KeysValues KeyValueCache::all() {
  gather();
  return as_they_lie();
}

// Every position into its own row.
void KeyValueCache::gather() {
  if (!origins_) return;
  const KeysValues now = as_they_lie();
  make_room(keys_.size(0), keys_, values_, keys_.size(2));  // copies of this see the memory before
  for (const auto& [from, to] : {std::pair(now.keys.k, keys_), std::pair(now.values, values_)})
    copy_into(gathered(from, *origins_), slice(first_rows(to, rows()), 2, 0, length()));
  origins_ = nullptr;
}

// Row i becomes what row from[i] was, without a move.
void KeyValueCache::follow(std::span<KeyValueCache* const> caches, std::span<const Id> from,
                           int64_t group) {
  std::shared_ptr<const Tensor> before, after;
  for (KeyValueCache* cache : caches) {
    if (!cache->keys_.defined()) continue;
    if (cache->group_ != group) cache->gather();
    if (!after || cache->origins_ != before) {
      before = cache->origins_;
      const int64_t known = before ? before->size(1) : 0, length = cache->length();
      std::vector<Id> rows;
      rows.reserve(from.size() * static_cast<size_t>(length));
      for (size_t i = 0; i < from.size(); ++i) {
        const Id parent = from[i];
        const int64_t there = cache->lengths_[static_cast<size_t>(parent)];
        const Id* const of_parent = known > 0 ? before->data<Id>() + parent * known : nullptr;
        for (int64_t j = 0; j < there; ++j) rows.push_back(j < known ? of_parent[j] : parent);
        // What is yet to come is written in the row itself.
        rows.insert(rows.end(), static_cast<size_t>(length - there), static_cast<Id>(i));
      }
      after = std::make_shared<const Tensor>(ids(rows, {std::ssize(from), length}));
    }
    cache->origins_ = after, cache->group_ = group;
    cache->lengths_ = chosen(cache->lengths_, from);
  }
}

Mask KeyValueCache::mask() const {
  const bool alike = std::ranges::all_of(lengths_, [&](Id n) { return n == lengths_[0]; });
  if (!fixed_ && alike) return {};
  return Mask::padding(lengths_);
}

void KeyValueCache::add_rows(int64_t count) {
  const int64_t wanted = rows() + count;
  // Those who are still there may be shorter than those who have left.
  if (keys_.defined() && wanted > keys_.size(0))
    move_to(KeyValueCache(*this), std::max(wanted, 2 * keys_.size(0)),
            std::min(keys_.size(2), std::max(kPositions, 2 * length())));
  if (origins_) {
    std::vector<Id> more = all_ids(*origins_);
    for (int64_t i = rows(); i < wanted; ++i)
      more.insert(more.end(), static_cast<size_t>(origins_->size(1)), static_cast<Id>(i));
    origins_ = std::make_shared<const Tensor>(ids(more, {wanted, origins_->size(1)}));
  }
  lengths_.resize(static_cast<size_t>(wanted), 0);
}

void KeyValueCache::keep_rows(std::span<const Id> from, std::span<const Id> to, int64_t count) {
  check_rows(from, rows()), check_rows(to, rows());
  if (!are_groups(from, group_) || !are_groups(to, group_) || count % group_ != 0) gather();
  RowMoves moves{{from.begin(), from.end()}, {to.begin(), to.end()}, chosen(lengths_, from)};
  for (size_t i = 0; i < to.size(); ++i) lengths_[static_cast<size_t>(to[i])] = moves.length[i];
  if (keys_.defined()) put_rows(std::vector{keys_, values_}, std::vector{keys_, values_}, moves);
  lengths_.resize(static_cast<size_t>(count));
  if (!origins_) return;
  const std::vector<Id> before = all_ids(*origins_);
  std::vector<Id> row_of = in_order(count), rows;  // which row each of them was
  for (size_t i = 0; i < to.size(); ++i)
    if (to[i] < count) row_of[static_cast<size_t>(to[i])] = from[i];
  const int64_t known = origins_->size(1), still = std::min(known, length());
  for (Id i = 0; i < count; ++i) {
    const Id was = row_of[static_cast<size_t>(i)];
    for (int64_t j = 0; j < still; ++j)
      rows.push_back(before[static_cast<size_t>(was * known + j)] + i - was);
  }
  origins_ = still > 0 ? std::make_shared<const Tensor>(ids(rows, {count, still})) : nullptr;
}

void KeyValueCache::empty_rows(std::span<const Id> which) {
  check_rows(which, rows());
  gather();
  for (const Id i : which) lengths_[static_cast<size_t>(i)] = 0;
}

void KeyValueCache::take(const KeyValueCache& other, std::span<const Id> from) {
  if (other.rows() == 0) return;
  check_rows(from, other.rows());
  if (other.origins_) {
    KeyValueCache apart = other;
    apart.gather();
    return take(apart, from);
  }
  origins_ = nullptr;
  lengths_ = chosen(other.lengths_, from);
  if (!other.keys_.defined()) return;
  require(!fixed_ || length() <= fixed_, "key/value cache: a capacity of ", fixed_,
          " positions, given ", length());
  if (!keys_.defined())
    make_room(rows(), other.keys_, other.values_, fixed_ ? fixed_ : other.keys_.size(2));
  move_rows(std::vector{other.keys_, other.values_}, std::vector{keys_, values_}, from, lengths_);
}

void KeyValueCache::reorder(std::span<KeyValueCache* const> caches, std::span<const Id> from,
                            int64_t group) {
  std::vector<Tensor> x;
  const KeyValueCache* first = nullptr;
  bool in_place = group <= kMaxGroup, same = true;
  for (KeyValueCache* cache : caches) {
    if (!cache->keys_.defined()) continue;
    if (!first) first = cache;
    require(cache->lengths_ == first->lengths_, "key/value cache: one holds ", first->length(),
            " positions, another ", cache->length(), "; they cannot be reordered together");
    in_place = in_place && cache->rows() == std::ssize(from);
    x.push_back(cache->keys_), x.push_back(cache->values_);
  }
  if (!first) return;
  check_rows(from, first->rows());
  for (size_t i = 0; i < from.size(); ++i) {
    in_place = in_place && from[i] / group == static_cast<int64_t>(i) / group;
    same = same && from[i] == static_cast<int64_t>(i);
  }
  if (!in_place) {
    for (KeyValueCache* cache : caches) {
      KeyValueCache picked = *cache;
      picked.keys_ = picked.values_ = {};
      picked.take(*cache, from);
      *cache = picked;
    }
    return;
  }
  // Where a step is captured it must do the same each time, also where nothing changes.
  if (same && !first->fixed_) return;
  if (!first->fixed_ && first->keys_.device() == Device::cpu) return follow(caches, from, group);
  std::vector<Id> lengths;  // of the groups: hypotheses of a sentence are equally long
  for (int64_t i = 0; i < std::ssize(from); i += group)
    lengths.push_back(first->lengths_[static_cast<size_t>(i)]);
  move_rows(x, x, from, lengths, group);
  const std::vector<Id> after = chosen(first->lengths_, from);
  for (KeyValueCache* cache : caches)
    if (cache->keys_.defined()) cache->lengths_ = after;
}

void KeyValueCache::reorder(std::span<KeyValueCache* const> caches, const Tensor& from,
                            int64_t group, const std::optional<Tensor>& given) {
  std::vector<Tensor> x;
  std::vector<Id> lengths;  // of the groups
  for (const KeyValueCache* cache : caches) {
    if (!cache->keys_.defined()) continue;
    if (x.empty())
      for (size_t i = 0; i < cache->lengths_.size(); i += static_cast<size_t>(group))
        lengths.push_back(cache->lengths_[i]);
    x.push_back(cache->keys_), x.push_back(cache->values_);
  }
  if (group == 1 || x.empty()) return;
  move_rows(x, x, from, given ? *given : ids(lengths, {std::ssize(lengths)}), group);
}

void KeyValueCache::reorder(std::span<const Id> from, int64_t group) {
  KeyValueCache* const one[] = {this};
  reorder(one, from, group);
}

}  // namespace heed
