// The two hand-off machines over a simulated network, on a virtual clock: messages are delayed, links break, workers crash
// and freeze, requests are aborted and cancelled. In the chaotic network control messages are lost, doubled and reordered
// too, which a stream never does.
//
// After each step: every block and reservation is somebody's, none is two people's, no side was told the end of a hand-off
// twice. A hand-off that arrived holds the bytes that were meant. At the end everything has ended and all blocks are back.
//
// A failure prints its seed; BATON_SIMULATION_SEED=<seed> runs that one alone.
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>

#include "absl/strings/numbers.h"
#include "base/check.h"
#include "gtest/gtest.h"
#include "kvstore/block_hash.h"
#include "kvstore/handoff_sink.h"
#include "kvstore/handoff_source.h"

namespace baton::kvstore {
namespace {

constexpr uint32_t kLayers = 3, kBlockTokens = 8;
constexpr uint32_t kSourceBlocks = 48, kSinkBlocks = 48;
constexpr uint32_t kRequests = 120;
constexpr absl::Duration kInjectionTime = absl::Seconds(30);
// Longer than every deadline: the machines' own, and the requests' in the chaotic network.
constexpr absl::Duration kQuietTime = absl::Seconds(40);
constexpr absl::Duration kRequestTime = absl::Seconds(20);

enum class Network { kOrderly, kChaotic };

// What a block holds in a layer, as one number.
using Stamp = uint64_t;
using Memory = std::vector<std::vector<Stamp>>;  // [layer][block]

uint64_t HashOf(const std::vector<Stamp>& stamps) {
  uint64_t hash = 1469598103934665603u;
  for (const Stamp stamp : stamps) hash = (hash ^ stamp) * 1099511628211u;
  return hash | 1;
}

// One request: what the engines on both sides and the router know of it.
struct Request {
  HandoffKey key;
  std::vector<uint32_t> tokens;
  uint32_t block_count = 0;
  base::Id128 prefill_incarnation, decode_incarnation;

  std::vector<KvBlockId> source_blocks;  // Held by the prefill engine.
  std::vector<std::vector<Stamp>> written;  // [layer][block of the prompt]
  bool begun = false;
  bool ended_at_first_token = false;
  int misfortunes_at_arrival = 0;
  int source_ends = 0;

  bool expected = false;
  uint32_t reserved = 0;
  int sink_ends = 0;  // Terminal events and successful cancels.
  std::vector<KvBlockId> sink_blocks;  // Held by the decode engine.
};

class World {
 public:
  World(uint64_t seed, Network network) : random_(seed), network_(network) {
    StartSource();
    StartSink();
    for (uint32_t i = 0; i < kRequests; ++i) {
      At(Between(0, 1) * kInjectionTime, [this, i] { Arrive(i); });
    }
    for (int i = 0; i < 10; ++i) At(Between(0, 1) * kInjectionTime, [this] { Misfortune(); });
    Every(absl::Milliseconds(50), [this] { Tick(); });
    Every(absl::Milliseconds(500), [this] { Beat(); });
  }

  ~World() {
    CrashSource();
    CrashSink();
  }

  void Run() {
    const absl::Time end = now_ + kInjectionTime + kQuietTime;
    while (!events_.empty() && now_ <= end && !testing::Test::HasFatalFailure()) {
      auto event = events_.extract(events_.begin());
      now_ = event.key();
      event.mapped()();
      CheckInvariants();
    }
    CheckEnd();
  }

  int ready() const { return ready_; }
  int failed() const { return failed_; }

 private:
  // --- Time and chance.

  void At(absl::Duration after, std::function<void()> event) {
    events_.emplace(now_ + after, std::move(event));
  }
  void Every(absl::Duration interval, std::function<void()> event) {
    At(interval, [this, interval, event] {
      event();
      Every(interval, event);
    });
  }
  double Between(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }
  bool Chance(double probability) { return Between(0, 1) < probability; }
  absl::Duration NetworkDelay() { return absl::Milliseconds(Between(0.05, Chance(0.02) ? 300 : 5)); }

  // --- Workers come and go.

  void StartSource() {
    source_incarnation_ = {.high = 1, .low = ++incarnations_};
    source_pool_ = std::make_unique<KvBlockPool>(kSourceBlocks);
    source_memory_.assign(kLayers, std::vector<Stamp>(kSourceBlocks, 0));
    source_ = std::make_unique<HandoffSource>(HandoffSourceOptions{.range_blocks_max = 3});
    source_frozen_until_ = now_;
  }

  void StartSink() {
    sink_incarnation_ = {.high = 2, .low = ++incarnations_};
    sink_pool_ = std::make_unique<KvBlockPool>(kSinkBlocks);
    sink_memory_.assign(kLayers, std::vector<Stamp>(kSinkBlocks, 0));
    sink_ = std::make_unique<HandoffSink>(
        HandoffSinkOptions{.layers = kLayers, .block_tokens = kBlockTokens, .layer_block_bytes = 1,
                           .early_offers_max = 32, .ended_keys_max = 16},
        *sink_pool_);
    sink_busy_until_ = now_;
    fetching_.reset();
    sink_inbox_.clear();
  }

  // What a dead process held is gone with it: no terminal event, but nothing may hold on to it either.
  void CrashSource() {
    for (auto& [key, request] : requests_) {
      if (request.prefill_incarnation != source_incarnation_) continue;
      if (!request.source_blocks.empty()) source_pool_->Release(request.source_blocks);
      request.source_blocks.clear();
      request.source_ends = 1;
      request.begun = true;  // Never again.
    }
    source_.reset();
    source_pool_.reset();
    source_link_.reset();
  }

  void CrashSink() {
    sink_->Shutdown(absl::UnavailableError("crash"));
    sink_->TakeActions();
    for (auto& [key, request] : requests_) {
      if (request.decode_incarnation != sink_incarnation_) continue;
      if (!request.sink_blocks.empty()) sink_pool_->Release(request.sink_blocks);
      request.sink_blocks.clear();
      request.sink_ends = 1;
      request.expected = true;  // Never again.
      request.reserved = 0;
    }
    sink_.reset();
    sink_pool_.reset();
    sink_link_.reset();
  }

  void Misfortune() {
    ++misfortunes_;
    switch (random_() % 5) {
      case 0: {
        const base::Id128 dead = source_incarnation_;
        BreakLink();
        CrashSource();
        StartSource();
        // The router notices and cancels what it knows of.
        for (const auto& [key, request] : requests_) {
          if (request.prefill_incarnation == dead) CancelSoon(key);
        }
        break;
      }
      case 1:
        BreakLink();
        CrashSink();
        StartSink();
        break;
      case 2:
        BreakLink();
        break;
      case 3:
        source_frozen_until_ = now_ + absl::Seconds(Between(0.5, 6));
        break;
      case 4:
        sink_busy_until_ = now_ + absl::Seconds(Between(0.5, 10));
        break;
    }
  }

  // --- Requests.

  void Arrive(uint32_t number) {
    Request& request = requests_[{.request_id = {.high = 3, .low = number}, .attempt = 1}];
    request.key = {.request_id = {.high = 3, .low = number}, .attempt = 1};
    request.tokens.resize(1 + random_() % (8 * kBlockTokens));
    for (uint32_t& token : request.tokens) token = static_cast<uint32_t>(random_() % 100);
    request.block_count = (request.tokens.size() + kBlockTokens - 1) / kBlockTokens;
    request.prefill_incarnation = source_incarnation_;
    request.decode_incarnation = sink_incarnation_;
    request.misfortunes_at_arrival = misfortunes_;
    const HandoffKey key = request.key;
    At(NetworkDelay(), [this, key] { Prefill(key); });
    // Some are never admitted, some long after the offer came.
    if (!Chance(0.1)) {
      // Within the time that an early offer is held for.
      At(Chance(0.2) ? absl::Seconds(Between(0, 0.8)) : NetworkDelay(), [this, key] { Admit(key); });
    }
    if (Chance(0.15)) At(absl::Seconds(Between(0, 1)), [this, key] { Cancel(key); });
  }

  void Prefill(const HandoffKey& key) {
    Request& request = requests_.at(key);
    if (request.begun || request.prefill_incarnation != source_incarnation_) return;
    std::vector<KvBlockId> blocks(request.block_count);
    if (!source_pool_->Allocate(absl::MakeSpan(blocks)).ok()) {
      At(absl::Milliseconds(50), [this, key] { Prefill(key); });
      return;
    }
    request.begun = true;
    request.source_blocks = blocks;
    request.written.assign(kLayers, std::vector<Stamp>(request.block_count, 0));
    source_->Begin(key, SourceLink(), static_cast<uint32_t>(request.tokens.size()), now_);
    CarryOutSource();
    Compute(key, 0);
    if (Chance(0.1)) {
      At(absl::Seconds(Between(0, 0.2)), [this, key, incarnation = source_incarnation_] {
        if (incarnation != source_incarnation_ || !source_->knows(key)) return;
        const bool at_first_token = Chance(0.7);
        requests_.at(key).ended_at_first_token = at_first_token;
        source_->Abort(key, at_first_token ? absl::OkStatus() : absl::InternalError("engine"));
        CarryOutSource();
      });
    }
  }

  // Writes the chunk that starts at `begin` layer by layer, then the next one; seals at the end.
  void Compute(const HandoffKey& key, uint32_t begin) {
    At(absl::Seconds(Between(0, Chance(0.02) ? 5 : 0.1)),
       [this, key, begin, incarnation = source_incarnation_] {
         if (incarnation != source_incarnation_) return;
         Request& request = requests_.at(key);
         if (!source_->knows(key)) return;
         const uint32_t end =
             std::min(request.block_count, begin + 1 + static_cast<uint32_t>(random_() % 5));
         for (uint32_t layer = 0; layer < kLayers; ++layer) {
           std::vector<KvBlockRef> refs;
           for (uint32_t b = begin; b < end; ++b) {
             const KvBlockId id = request.source_blocks[b];
             request.written[layer][b] = ++stamps_;
             source_memory_[layer][static_cast<uint32_t>(id)] = stamps_;
             refs.push_back({id, source_pool_->generation(id)});
           }
           source_->Announce(key, layer, begin, refs, now_);
         }
         if (end == request.block_count) source_->Seal(key, SealOf(request), now_);
         CarryOutSource();
         if (end < request.block_count) Compute(key, end);
       });
  }

  static SealInfo SealOf(const Request& request) {
    const std::vector<std::string> digests = BlockDigests(request.tokens, kBlockTokens, "");
    return {.tokens = static_cast<uint32_t>(request.tokens.size()),
            .last_block_digest = digests.empty() ? "" : digests.back()};
  }

  void Admit(const HandoffKey& key) {
    Request& request = requests_.at(key);
    if (request.expected || request.decode_incarnation != sink_incarnation_) return;
    const uint32_t reserved = request.block_count + static_cast<uint32_t>(random_() % 3);
    if (!sink_pool_->Reserve(reserved).ok()) return;
    request.expected = true;
    request.reserved = reserved;
    sink_->Expect(key,
                  {.prefill_incarnation = request.prefill_incarnation,
                   .tokens = request.tokens,
                   .blocks_reserved = reserved,
                   .deadline = network_ == Network::kChaotic ? now_ + kRequestTime
                                                             : absl::InfiniteFuture()},
                  now_);
    CarryOutSink();
  }

  void CancelSoon(const HandoffKey& key) {
    if (network_ == Network::kChaotic && Chance(0.5)) return;  // The router is no better off.
    At(NetworkDelay(), [this, key] { Cancel(key); });
  }

  void Cancel(const HandoffKey& key) {
    Request& request = requests_.at(key);
    if (request.decode_incarnation != sink_incarnation_) return;
    if (!request.expected) {
      request.expected = true;  // The router will not admit it any more.
      request.sink_ends = 1;
      return;
    }
    if (fetching_.has_value() && fetching_->range.key == key) {
      At(absl::Milliseconds(1), [this, key] { Cancel(key); });  // As Cancel() waits for the copy.
      return;
    }
    if (!sink_->Cancel(key)) return;
    request.reserved = 0;
    ++request.sink_ends;
    CarryOutSink();
  }

  // --- Links: one at a time, known to both ends by one number.

  LinkId SourceLink() {
    if (source_link_.has_value()) return *source_link_;
    const LinkId link{++links_};
    source_link_ = link;
    source_of_link_[link] = source_incarnation_;
    pushed_ = Chance(0.5);
    const bool pushed = pushed_;
    control_free_at_ = bulk_free_at_ = replies_free_at_ = now_;
    At(NetworkDelay(), [this, link, pushed, from = source_incarnation_] {
      ToSink([this, link, pushed, from] {
        if (source_link_ != link) return;
        sink_link_ = link;
        sink_->OnLinkUp(link, from, pushed ? RangeDelivery::kPushed : RangeDelivery::kCopied, now_);
        At(NetworkDelay(), [this, link] {
          if (source_link_ != link) return;
          source_->OnLinkUp(link, now_);
          source_link_up_ = true;
          CarryOutSource();
        });
      });
    });
    return link;
  }

  // Everything on its way is lost; each end hears of it on its own.
  void BreakLink() {
    if (!source_link_.has_value()) return;
    const LinkId link = *source_link_;
    source_link_.reset();
    source_link_up_ = false;
    const absl::Status broken = absl::UnavailableError("the link broke");
    At(NetworkDelay(), [this, link, broken, incarnation = source_incarnation_] {
      if (incarnation != source_incarnation_) return;
      source_->OnLinkLost(link, broken);
      CarryOutSource();
    });
    At(NetworkDelay(), [this, link, broken] {
      ToSink([this, link, broken] {
        sink_->OnLinkLost(link, broken);
        if (sink_link_ == link) sink_link_.reset();
      });
    });
  }

  // When a message sent now arrives: in order on its channel, unless the network is chaotic.
  absl::Duration Arrival(absl::Time& channel_free_at) {
    if (network_ == Network::kChaotic) return NetworkDelay();
    channel_free_at = std::max(channel_free_at, now_ + NetworkDelay());
    return channel_free_at - now_ + absl::Nanoseconds(1);
  }
  int Copies() {
    if (network_ == Network::kOrderly) return 1;
    return Chance(0.05) ? 0 : Chance(0.03) ? 2 : 1;
  }

  void SendToSinkSide(LinkId link, const SourceMessage& message) {
    for (int copy = Copies(); copy > 0; --copy) {
      At(Arrival(control_free_at_), [this, link, message] {
        ToSink([this, link, message] {
          if (sink_link_ == link) sink_->OnMessage(link, message, now_);
        });
      });
    }
  }

  void SendToSourceSide(LinkId link, const SinkMessage& message) {
    for (int copy = Copies(); copy > 0; --copy) {
      At(Arrival(replies_free_at_), [this, link, message] { Deliver(link, message); });
    }
  }

  void Deliver(LinkId link, const SinkMessage& message) {
    if (now_ < source_frozen_until_) {
      events_.emplace(source_frozen_until_, [this, link, message] { Deliver(link, message); });
      return;
    }
    if (source_link_ != link) return;
    source_->OnMessage(link, message, now_);
    CarryOutSource();
  }

  // The bytes of a range, block by block, as they are now.
  void Push(LinkId link, const AnnounceRange& range) {
    for (uint32_t i = 0; i < range.blocks.size(); ++i) {
      const PushedBytes piece = {.key = range.key,
                                 .range_index = range.range_index,
                                 .layer = range.layer,
                                 .first_block = range.first_block,
                                 .block_count = static_cast<uint32_t>(range.blocks.size()),
                                 .offset = i,
                                 .bytes = 1};
      const Stamp stamp = source_memory_[range.layer][static_cast<uint32_t>(range.blocks[i].id)];
      // A bulk stream is in order in any network, or its connection is broken.
      bulk_free_at_ = std::max(bulk_free_at_, now_ + NetworkDelay()) + absl::Nanoseconds(1);
      events_.emplace(bulk_free_at_, [this, link, piece, stamp] {
        ToSink([this, link, piece, stamp] {
          if (sink_link_ == link) TakePushed(link, piece, stamp);
        });
      });
    }
  }

  void TakePushed(LinkId link, const PushedBytes& piece, Stamp stamp) {
    const auto destination = sink_->OnBytes(link, piece, now_);
    if (!destination.has_value()) return;
    sink_memory_[piece.layer][static_cast<uint32_t>((*destination)[piece.offset])] = stamp;
    sink_->OnBytesPlaced(piece, now_);
  }

  // --- The drivers of the two machines.

  void Tick() {
    if (now_ >= source_frozen_until_) {
      source_->Tick(now_);
      CarryOutSource();
    }
    ToSink([this] { sink_->Tick(now_); });
  }

  void Beat() {
    if (source_link_up_ && now_ >= source_frozen_until_) SendToSinkSide(*source_link_, Heartbeat{});
  }

  void CarryOutSource() {
    for (SourceAction& action : source_->TakeActions()) {
      if (auto* ended = std::get_if<HandoffEnded>(&action)) {
        SourceEnded(ended->key, ended->status);
        continue;
      }
      auto& [link, message] = std::get<SendToSink>(action);
      if (auto* range = std::get_if<AnnounceRange>(&message)) {
        std::vector<Stamp> stamps;
        for (const KvBlockRef& block : range->blocks) {
          stamps.push_back(source_memory_[range->layer][static_cast<uint32_t>(block.id)]);
        }
        range->checksum = HashOf(stamps);
        if (pushed_) Push(link, *range);
      }
      SendToSinkSide(link, message);
    }
  }

  void SourceEnded(const HandoffKey& key, const absl::Status& status) {
    Request& request = requests_.at(key);
    ++request.source_ends;
    source_pool_->Release(request.source_blocks);
    request.source_blocks.clear();
    if (status.ok()) return;
    if (!request.ended_at_first_token) {
      CancelSoon(key);
      return;
    }
    // The answer was whole, nothing is wrong, and the sink hears it from the source alone: only if a link broke on the way
    // may it take the router to say so.
    At(absl::Seconds(8), [this, key] {
      if (requests_.at(key).misfortunes_at_arrival != misfortunes_) Cancel(key);
    });
  }

  // The sink's thread: one thing after the other, nothing while it copies or is frozen.
  void ToSink(std::function<void()> input) {
    sink_inbox_.push_back({sink_incarnation_, std::move(input)});
    ServeSink();
  }

  void ServeSink() {
    if (now_ < sink_busy_until_) {
      events_.emplace(sink_busy_until_, [this] { ServeSink(); });
      return;
    }
    while (!sink_inbox_.empty() && !fetching_.has_value()) {
      const auto [incarnation, input] = std::move(sink_inbox_.front());
      sink_inbox_.pop_front();
      if (incarnation != sink_incarnation_) continue;
      input();
      CarryOutSink();
    }
    BeginFetch();
  }

  void BeginFetch() {
    if (fetching_.has_value()) return;
    fetching_ = sink_->NextFetch();
    if (!fetching_.has_value()) return;
    absl::Status status = Copy(*fetching_, 0);
    At(absl::Milliseconds(Between(0, 1)), [this, status, incarnation = sink_incarnation_] {
      if (incarnation == sink_incarnation_) EndFetch(status);
    });
  }

  void EndFetch(absl::Status status) {
    const RangeFetch fetch = *std::exchange(fetching_, std::nullopt);
    if (status.ok()) status = Copy(fetch, 1);
    if (status.ok()) {
      std::vector<Stamp> stamps;
      for (const KvBlockId block : fetch.destination) {
        stamps.push_back(sink_memory_[fetch.range.layer][static_cast<uint32_t>(block)]);
      }
      if (HashOf(stamps) != fetch.range.checksum) status = absl::DataLossError("checksum");
    }
    sink_->OnRangeFetched(fetch, status, now_);
    CarryOutSink();
    ServeSink();
  }

  // Every other block, so that a copy takes time and the source may change in the middle of it.
  absl::Status Copy(const RangeFetch& fetch, uint32_t parity) {
    if (fetch.delivery == RangeDelivery::kPushed) return absl::OkStatus();
    if (source_of_link_.at(fetch.link) != source_incarnation_) return absl::UnavailableError("dead");
    for (uint32_t i = parity; i < fetch.destination.size(); i += 2) {
      const auto from = static_cast<uint32_t>(fetch.range.blocks[i].id);
      sink_memory_[fetch.range.layer][static_cast<uint32_t>(fetch.destination[i])] =
          source_memory_[fetch.range.layer][from];
    }
    for (const KvBlockRef& block : fetch.range.blocks) {
      if (source_pool_->generation(block.id) != block.generation) {
        return absl::UnavailableError("another owner");
      }
    }
    return absl::OkStatus();
  }

  void CarryOutSink() {
    for (SinkAction& action : sink_->TakeActions()) {
      if (auto* send = std::get_if<SendToSource>(&action)) {
        SendToSourceSide(send->link, send->message);
      } else if (auto* ready = std::get_if<HandoffReady>(&action)) {
        Ready(ready->key, std::move(ready->received));
      } else if (auto* fail = std::get_if<HandoffFailed>(&action)) {
        Request& request = requests_.at(fail->key);
        ++request.sink_ends;
        request.reserved = 0;
        ++failed_;
      } else if (source_link_ == std::get<CloseLink>(action).link) {
        BreakLink();
      }
    }
  }

  void Ready(const HandoffKey& key, ReceivedHandoff received) {
    Request& request = requests_.at(key);
    ++request.sink_ends;
    ++ready_;
    ASSERT_EQ(received.blocks.size(), request.block_count);
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      for (uint32_t b = 0; b < request.block_count; ++b) {
        ASSERT_EQ(sink_memory_[layer][static_cast<uint32_t>(received.blocks[b])],
                  request.written[layer][b])
            << "wrong bytes in layer " << layer << " block " << b << " of " << key;
      }
    }
    request.reserved = 0;
    request.sink_blocks = received.blocks;
    sink_pool_->Unreserve(received.reserved_left);
    At(absl::Seconds(Between(0, 2)), [this, key, incarnation = sink_incarnation_] {
      if (incarnation != sink_incarnation_) return;
      Request& finished = requests_.at(key);
      sink_pool_->Release(finished.sink_blocks);
      finished.sink_blocks.clear();
    });
  }

  // --- What must hold.

  void CheckInvariants() {
    uint32_t source_held = 0, sink_owned = 0;
    std::set<KvBlockId> seen_source, seen_sink;
    for (const auto& [key, request] : requests_) {
      ASSERT_LE(request.source_ends, 1) << key;
      ASSERT_LE(request.sink_ends, 1) << key;
      source_held += static_cast<uint32_t>(request.source_blocks.size());
      sink_owned += request.reserved + static_cast<uint32_t>(request.sink_blocks.size());
      for (const KvBlockId b : request.source_blocks) ASSERT_TRUE(seen_source.insert(b).second);
      for (const KvBlockId b : request.sink_blocks) ASSERT_TRUE(seen_sink.insert(b).second);
    }
    ASSERT_EQ(source_pool_->counts().held, source_held);
    ASSERT_EQ(sink_pool_->counts().held + sink_pool_->counts().reserved, sink_owned);
  }

  void CheckEnd() {
    for (const auto& [key, request] : requests_) {
      EXPECT_EQ(request.source_ends, request.begun ? 1 : 0) << key << " at the source";
      EXPECT_EQ(request.sink_ends, request.expected ? 1 : 0) << key << " at the sink";
    }
    EXPECT_EQ(source_pool_->counts().held, 0u);
    EXPECT_EQ(sink_pool_->counts().held, 0u);
    EXPECT_EQ(sink_pool_->counts().reserved, 0u);
    EXPECT_EQ(source_->handoff_count(), 0u);
    EXPECT_EQ(sink_->handoff_count(), 0u);
    EXPECT_EQ(sink_->early_offer_count(), 0u);
  }

  std::mt19937_64 random_;
  const Network network_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  std::multimap<absl::Time, std::function<void()>> events_;
  uint64_t incarnations_ = 0, stamps_ = 0, links_ = 0;
  std::map<HandoffKey, Request> requests_;

  base::Id128 source_incarnation_, sink_incarnation_;
  std::unique_ptr<KvBlockPool> source_pool_, sink_pool_;
  Memory source_memory_, sink_memory_;
  std::unique_ptr<HandoffSource> source_;
  std::unique_ptr<HandoffSink> sink_;
  absl::Time source_frozen_until_, sink_busy_until_;
  std::optional<RangeFetch> fetching_;
  std::deque<std::pair<base::Id128, std::function<void()>>> sink_inbox_;

  std::optional<LinkId> source_link_, sink_link_;  // As each end sees it.
  std::map<LinkId, base::Id128> source_of_link_;
  bool source_link_up_ = false;
  bool pushed_ = false;
  absl::Time control_free_at_, bulk_free_at_, replies_free_at_;
  int misfortunes_ = 0;
  int ready_ = 0, failed_ = 0;
};

std::vector<uint64_t> Seeds() {
  uint64_t only = 0;
  const char* wanted = std::getenv("BATON_SIMULATION_SEED");
  if (wanted != nullptr && absl::SimpleAtoi(wanted, &only)) return {only};
  std::vector<uint64_t> seeds(300);
  std::iota(seeds.begin(), seeds.end(), 1);
  return seeds;
}

void RunAll(Network network) {
  int ready = 0, failed = 0;
  for (const uint64_t seed : Seeds()) {
    SCOPED_TRACE(testing::Message() << "BATON_SIMULATION_SEED=" << seed);
    World world(seed, network);
    world.Run();
    if (testing::Test::HasFailure()) return;
    ready += world.ready();
    failed += world.failed();
  }
  // A simulation in which nothing arrives, or nothing goes wrong, proves little.
  EXPECT_GT(ready, 0);
  EXPECT_TRUE(failed > ready / 50 || Seeds().size() == 1);
  std::cout << ready << " hand-offs arrived, " << failed << " failed at the sink\n";
}

TEST(HandoffSimulation, OrderlyNetwork) { RunAll(Network::kOrderly); }
TEST(HandoffSimulation, ChaoticNetwork) { RunAll(Network::kChaotic); }

}  // namespace
}  // namespace baton::kvstore
