#include "heed/serve/http.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#ifdef __linux__
#include <linux/filter.h>
#include <sys/socket.h>
#endif

#include "heed/base/check.h"

namespace heed::serve {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr size_t kWriteBytes = 64 << 10;
constexpr std::chrono::milliseconds kLinger{2000};  // for a client to read why it is refused
constexpr std::chrono::milliseconds kLastWords{500};
constexpr std::chrono::milliseconds kHandshake{50};  // of clients that connect while it ends
// A client that has closed its side may still want its answer, or have gone: for so long it is
// thought to want it.
constexpr std::chrono::milliseconds kHalfClosed{5000};
constexpr std::chrono::milliseconds kSlow{2000};  // to send a request, where others want to

std::string text_of(boost::string_view text) { return {text.data(), text.size()}; }

Response refusal(int status, const std::string& words) {
  return {.status = status, .body = "{\"error\":\"" + words + "\"}\n"};
}

// The system takes no new connection from now on, but still completes those that have begun: one
// that came between the last accept() and close() would be reset, and its request lost.
void refuse_new([[maybe_unused]] int listener) {
#ifdef __linux__
  sock_filter drop_syn[] = {BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 13),  // the flags of TCP's header
                            BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x02, 0, 1),
                            BPF_STMT(BPF_RET | BPF_K, 0), BPF_STMT(BPF_RET | BPF_K, 0xffffffff)};
  const sock_fprog filter{.len = std::size(drop_syn), .filter = drop_syn};
  // Where it cannot be had, that moment is short.
  (void)setsockopt(listener, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter);
#endif
}

}  // namespace

// What all connections share.
class HttpServer::State : public std::enable_shared_from_this<State> {
 public:
  class Connection;

  State(const HttpOptions& o, Handler h, Refused r)
      : options(o), handler(std::move(h)), refused(std::move(r)), acceptor_(asio::make_strand(io)) {
    error_code failed;
    const std::string address = o.host == "localhost" ? "127.0.0.1" : o.host;
    const asio::ip::address ip = asio::ip::make_address(address, failed);
    require(!failed, "serve: '", o.host, "' is no address; wants one such as 127.0.0.1 or 0.0.0.0");
    require(o.port >= 0 && o.port < 65536, "serve: there is no port ", o.port);
    const tcp::endpoint where(ip, static_cast<unsigned short>(o.port));
    const auto want = [&](const char* what) {
      require(!failed, "serve: cannot ", what, " ", o.host, ":", o.port, ": ", failed.message());
    };
    acceptor_.open(where.protocol(), failed), want("open");
    acceptor_.set_option(tcp::acceptor::reuse_address(true), failed);
    acceptor_.bind(where, failed), want("use");
    acceptor_.listen(1024, failed), want("listen at");
    acceptor_.non_blocking(true, failed);
    port = acceptor_.local_endpoint().port();
  }

  void accept();
  void admit(tcp::socket socket);
  void run();
  void stop();
  void forget(const std::shared_ptr<Connection>& connection);
  // Those that have asked for nothing yet, in their order: where there are too many connections,
  // they make room.
  enum class Asks { nothing, slowly };
  void rests(const std::shared_ptr<Connection>& connection, Asks what);
  void rests_no_more(const std::shared_ptr<Connection>& connection);
  int64_t count() const {
    const std::lock_guard lock(mutex_);
    return std::ssize(open_);
  }

  const HttpOptions options;
  const Handler handler;
  const Refused refused;
  asio::io_context io;
  int port = 0;
  std::atomic<bool> stopping = false;

 private:
  void begin_stop();
  void accept_last();
  void cut_all();
  bool make_room();
  using Clock = std::chrono::steady_clock;
  using Rest = std::pair<Asks, std::pair<Clock::time_point, uint64_t>>;

  tcp::acceptor acceptor_;
  mutable std::mutex mutex_;
  std::map<std::shared_ptr<Connection>, std::optional<Rest>> open_;
  std::map<Rest, std::shared_ptr<Connection>> resting_;  // the first ones first
  uint64_t rested_ = 0;
};

// One client. All of its functions but those of Reply run on its strand.
class HttpServer::State::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, std::shared_ptr<State> state)
      : state_(std::move(state)),
        socket_(std::move(socket)),
        timer_(socket_.get_executor()),
        gone_(socket_.get_executor()) {
    error_code failed;
    const tcp::endpoint peer = socket_.remote_endpoint(failed);
    if (!failed) peer_ = peer.address().to_string();
    socket_.set_option(tcp::no_delay(true), failed);
  }

  void start() {
    asio::dispatch(socket_.get_executor(), [self = shared_from_this()] { self->read(); });
  }
  void refuse_at_once() {
    asio::dispatch(socket_.get_executor(), [self = shared_from_this()] {
      self->refuse(503, "Too many connections; try again later");
    });
  }
  // Where nothing is under way, what was sent meanwhile is still answered.
  void last_words() {
    asio::post(socket_.get_executor(), [self = shared_from_this()] {
      if (self->idle_) self->wait_at_most(kLastWords, /*silent=*/true);
    });
  }
  void cut() {
    asio::post(socket_.get_executor(), [self = shared_from_this()] { self->close(); });
  }
  // For others, unless it has gone on meanwhile.
  void make_room(Asks what) {
    asio::dispatch(socket_.get_executor(), [self = shared_from_this(), what] {
      const bool rests = what == Asks::nothing ? self->idle_ && !self->asked_more()
                                               : !self->idle_ && !self->asked_;
      if (rests) self->close();
    });
  }

 private:
  // The answer to one request. Gone without an answer, it is one of its own.
  class Answer : public Reply {
   public:
    Answer(std::shared_ptr<Connection> connection, bool keep_alive, bool head_only, bool chunked)
        : connection_(std::move(connection)),
          work_(connection_->state_->io.get_executor()),
          keep_alive_(keep_alive),
          head_only_(head_only),
          chunked_(chunked) {}
    ~Answer() override {
      if (!begun_) send(refusal(500, "The request was lost"));
      if (!ended_) end();
    }
    void send(Response r) override {
      if (std::exchange(begun_, true)) return;
      ended_ = true;
      std::string framing = "Content-Length: " + std::to_string(r.body.size()) + "\r\n";
      std::string body = head_only_ ? "" : std::move(r.body);
      deliver_head(std::move(r), std::move(framing), std::move(body), /*last=*/true);
    }
    void begin(Response head) override {
      if (std::exchange(begun_, true)) return;
      if (!chunked_) keep_alive_ = false;  // HTTP/1.0: its end is the connection's
      deliver_head(std::move(head), chunked_ ? "Transfer-Encoding: chunked\r\n" : "", "", false);
    }
    void write(std::string part) override {
      if (part.empty() || head_only_ || ended_) return;
      if (chunked_) {
        char size[32];
        std::snprintf(size, sizeof size, "%zx\r\n", part.size());
        part = size + std::move(part) + "\r\n";
      }
      deliver(std::move(part), false);
    }
    void end() override {
      if (std::exchange(ended_, true)) return;
      deliver(chunked_ && !head_only_ ? "0\r\n\r\n" : "", true);
    }
    bool wanted() const override { return connection_->wanted_; }

   private:
    // Whether the connection lasts is found out on its strand.
    void deliver_head(Response head, std::string framing, std::string body, bool last) {
      asio::post(connection_->socket_.get_executor(),
                 [self = connection_, head = std::move(head), framing = std::move(framing),
                  body = std::move(body), last, keep = keep_alive_] {
                   self->keep_ = keep && (!self->state_->stopping || self->asked_more());
                   self->enqueue(head_of(head, self->keep_, framing) + body, last);
                 });
    }
    void deliver(std::string bytes, bool last) {
      asio::post(connection_->socket_.get_executor(),
                 [self = connection_, bytes = std::move(bytes), last]() mutable {
                   self->enqueue(std::move(bytes), last);
                 });
    }

    const std::shared_ptr<Connection> connection_;
    // While somebody computes there is nothing to do for the loop, which must not end.
    const asio::executor_work_guard<asio::io_context::executor_type> work_;
    bool keep_alive_;
    const bool head_only_, chunked_;
    bool begun_ = false, ended_ = false;
  };

  using Parser = http::request_parser<http::string_body>;

  // Whether the client has sent its next request already. Not while one is being read.
  bool asked_more() const {
    error_code failed;
    return buffer_.size() > 0 || (socket_.available(failed) > 0 && !failed);
  }

  // ---- reading

  void wait_at_most(std::chrono::milliseconds time, bool silent) {
    silent_ = silent;
    timer_.expires_after(time);
    // A wait that ended while something else came first is none of the next one's.
    timer_.async_wait([self = shared_from_this(), wait = ++wait_](error_code canceled) {
      if (canceled || wait != self->wait_) return;
      self->late_ = true;
      error_code ignored;
      self->socket_.cancel(ignored);
    });
  }

  void stop_waiting() {
    ++wait_;
    timer_.cancel();
  }

  void read() {
    parser_.emplace();
    parser_->header_limit(state_->options.header_bytes);
    parser_->body_limit(state_->options.body_bytes);
    late_ = asked_ = false;
    ++watch_;
    gone_.cancel();
    skip_empty_lines();
    idle_ = buffer_.size() == 0;
    if (!idle_) return read_header();
    state_->rests(shared_from_this(), Asks::nothing);
    // A connection may be idle for long, but not in the middle of a request: that is another clock.
    wait_at_most(state_->stopping ? kLastWords : state_->options.idle_time, /*silent=*/true);
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code failed) {
      if (failed) return self->close();
      self->idle_ = false;
      self->read_header();
    });
  }

  // Those before a request are no part of it (RFC 9112, 2.2): some clients end a body with one.
  void skip_empty_lines() {
    const auto* bytes = static_cast<const char*>(buffer_.data().data());
    const auto* end = bytes + buffer_.size();
    buffer_.consume(static_cast<size_t>(
        std::find_if(bytes, end, [](char c) { return c != '\r' && c != '\n'; }) - bytes));
  }

  void read_header() {
    state_->rests(shared_from_this(), Asks::slowly);
    wait_at_most(state_->options.read_time, /*silent=*/false);
    read_first();
  }

  void read_first() {
    if (buffer_.size() > 0) return read_fields();
    socket_.async_read_some(buffer_.prepare(4096),
                            [self = shared_from_this()](error_code failed, size_t read) {
                              if (failed) return self->give_up(failed);
                              self->buffer_.commit(read);
                              self->skip_empty_lines();
                              if (self->buffer_.size() == 0) return self->read();  // it still rests
                              self->read_first();
                            });
  }

  void read_fields() {
    http::async_read_header(socket_, buffer_, *parser_,
                            [self = shared_from_this()](error_code failed, size_t) {
                              if (failed) return self->give_up(failed);
                              self->read_body();
                            });
  }

  void read_body() {
    const auto& head = parser_->get();
    if (const auto length = parser_->content_length();
        length && *length > state_->options.body_bytes)
      return refuse_body();
    if (head.find(http::field::expect) != head.end()) {
      // The client waits for a word before it sends the body.
      static const std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
      asio::async_write(socket_, asio::buffer(go_on),
                        [self = shared_from_this()](error_code failed, size_t) {
                          if (failed) return self->close();
                          self->read_rest();
                        });
      return;
    }
    read_rest();
  }

  void read_rest() {
    http::async_read(socket_, buffer_, *parser_,
                     [self = shared_from_this()](error_code failed, size_t) {
                       if (failed) return self->give_up(failed);
                       self->stop_waiting();
                       self->asked_ = true;
                       self->state_->rests_no_more(self);
                       self->handle();
                     });
  }

  // While an answer is computed, whether the client is still there. One that was cut off is gone at
  // once; one that has closed may have closed its own side alone, and is given some time.
  void watch() {
    socket_.async_wait(tcp::socket::wait_read,
                       [self = shared_from_this(), watch = watch_](error_code failed) {
                         if (failed || watch != self->watch_) return;
                         char byte = 0;
                         const auto peek = tcp::socket::message_peek;
                         self->socket_.non_blocking(true, failed);
                         self->socket_.receive(asio::buffer(&byte, 1), peek, failed);
                         if (failed == asio::error::eof) return self->half_closed();
                         if (failed && failed != asio::error::would_block) self->wanted_ = false;
                       });
  }
  void half_closed() {
    gone_.expires_after(kHalfClosed);
    gone_.async_wait([self = shared_from_this(), watch = watch_](error_code canceled) {
      if (!canceled && watch == self->watch_) self->wanted_ = false;
    });
  }

  void refuse_body() {
    refuse(413, "The body has more than " + std::to_string(state_->options.body_bytes) + " bytes");
  }

  void give_up(error_code failed) {
    stop_waiting();
    if (late_) return silent_ ? close() : refuse(408, "The request did not come in time");
    if (failed == http::error::body_limit) return refuse_body();
    if (failed == http::error::header_limit || failed == http::error::buffer_overflow)
      return refuse(431, "The header has more than " +
                             std::to_string(state_->options.header_bytes) + " bytes");
    const bool http_error =
        failed.category() == make_error_code(http::error::bad_method).category();
    if (failed == http::error::end_of_stream || failed == http::error::partial_message ||
        !http_error)
      return close();
    refuse(400, "Not HTTP/1.1: " + failed.message());
  }

  void handle() {
    auto message = parser_->release();
    Request request;
    request.method = text_of(message.method_string());
    for (const auto& field : message) {
      std::string& value = request.headers[text_of(field.name_string())];
      if (!value.empty()) value += ", ";
      value += text_of(field.value());
    }
    request.body = std::move(message.body());
    request.peer = peer_;
    if (!set_target(request, {message.target().data(), message.target().size()}))
      return refuse(400, "The request's target is no path");
    const bool chunked = message.version() >= 11;
    const auto reply = std::make_shared<Answer>(shared_from_this(), message.keep_alive(),
                                                request.method == "HEAD", chunked);
    skip_empty_lines();
    if (buffer_.size() == 0) watch();
    state_->handler(std::move(request), reply);
  }

  // ---- writing

  void refuse(int status, const std::string& words) {
    if (state_->refused) state_->refused(status, peer_);
    Response r = refusal(status, words);
    if (status == 503) r.headers.emplace_back("Retry-After", "1");
    const std::string length = "Content-Length: " + std::to_string(r.body.size()) + "\r\n";
    keep_ = false;
    enqueue(head_of(r, keep_, length) + r.body, /*last=*/true);
  }

  void enqueue(std::string bytes, bool last) {
    parts_.push_back({std::move(bytes), last});
    if (parts_.size() == 1) write();
  }

  void write() {
    Part& part = parts_.front();
    if (!wanted_) part.sent = part.bytes.size();
    if (part.sent == part.bytes.size()) {
      const Part done = std::move(part);
      parts_.pop_front();
      if (done.last && !wanted_) return close();
      if (done.last) return keep_ ? read() : linger();
      if (!parts_.empty()) write();
      return;
    }
    late_ = false;
    wait_at_most(state_->options.read_time, /*silent=*/true);
    const size_t n = std::min(kWriteBytes, part.bytes.size() - part.sent);
    asio::async_write(socket_, asio::buffer(part.bytes.data() + part.sent, n),
                      [self = shared_from_this()](error_code failed, size_t sent) {
                        self->stop_waiting();
                        if (failed) self->wanted_ = false;
                        self->parts_.front().sent += sent;
                        self->write();
                      });
  }

  // Bytes that nobody reads would make the system take back the answer: they are read, for a while.
  void linger() {
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    late_ = false;
    wait_at_most(kLinger, /*silent=*/true);
    discard();
  }
  void discard() {
    trash_.resize(16 << 10);
    socket_.async_read_some(asio::buffer(trash_),
                            [self = shared_from_this()](error_code failed, size_t) {
                              if (failed) return self->close();
                              self->discard();
                            });
  }

  void close() {
    wanted_ = false;
    ++watch_;
    gone_.cancel();
    stop_waiting();
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_both, ignored);
    socket_.close(ignored);
    state_->forget(shared_from_this());
  }

  struct Part {
    std::string bytes;
    bool last = false;
    size_t sent = 0;
  };
  const std::shared_ptr<State> state_;
  tcp::socket socket_;
  asio::steady_timer timer_, gone_;
  std::string peer_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::deque<Part> parts_;
  std::vector<char> trash_;
  uint64_t wait_ = 0, watch_ = 0;  // which ones the timers are for
  bool late_ = false, silent_ = false, idle_ = false;
  bool asked_ = false;  // a whole request is being answered
  bool keep_ = false;   // the connection goes on after its answer
  std::atomic<bool> wanted_ = true;
};

void HttpServer::State::accept() {
  acceptor_.async_accept(
      asio::make_strand(io), [self = shared_from_this()](error_code failed, tcp::socket socket) {
        if (!failed) self->admit(std::move(socket));  // also one that came just before the end
        if (!self->acceptor_.is_open()) return;
        if (!failed || failed == asio::error::connection_aborted) return self->accept();
        if (failed == asio::error::operation_aborted) return;
        // No more descriptors, say: others will be closed, those that ask for nothing now.
        const bool room = self->make_room();
        const auto later = std::make_shared<asio::steady_timer>(self->acceptor_.get_executor());
        later->expires_after(std::chrono::milliseconds(room ? 1 : 100));
        later->async_wait([self, later](error_code) {
          if (self->acceptor_.is_open()) self->accept();
        });
      });
}

void HttpServer::State::admit(tcp::socket socket) {
  const auto connection = std::make_shared<Connection>(std::move(socket), shared_from_this());
  const bool room = count() < options.connections || make_room();
  {
    const std::lock_guard lock(mutex_);
    open_.emplace(connection, std::nullopt);
  }
  room ? connection->start() : connection->refuse_at_once();
}

void HttpServer::State::forget(const std::shared_ptr<Connection>& connection) {
  rests_no_more(connection);
  const std::lock_guard lock(mutex_);
  open_.erase(connection);
}

void HttpServer::State::rests(const std::shared_ptr<Connection>& connection, Asks what) {
  rests_no_more(connection);
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(connection);
  if (found == open_.end()) return;
  found->second = Rest(what, {Clock::now(), ++rested_});
  resting_.emplace(*found->second, connection);
}

void HttpServer::State::rests_no_more(const std::shared_ptr<Connection>& connection) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(connection);
  if (found == open_.end() || !found->second) return;
  resting_.erase(*found->second);
  found->second.reset();
}

// Closes the connection that has been idle longest or, if none is, the one that has been sending a
// request longest, if that is long. Otherwise all of them are served, and there is no room.
bool HttpServer::State::make_room() {
  std::shared_ptr<Connection> first;
  Asks what = Asks::nothing;
  {
    const std::lock_guard lock(mutex_);
    if (resting_.empty()) return false;
    what = resting_.begin()->first.first;
    const Clock::time_point since = resting_.begin()->first.second.first;
    if (what == Asks::slowly && Clock::now() - since < kSlow) return false;
    first = resting_.begin()->second;
    open_[first].reset();
    resting_.erase(resting_.begin());
  }
  first->make_room(what);
  return true;
}

void HttpServer::State::run() {
  asio::dispatch(acceptor_.get_executor(), [self = shared_from_this()] { self->accept(); });
  std::vector<std::thread> others;
  for (int i = 1; i < options.threads; ++i) others.emplace_back([this] { io.run(); });
  io.run();
  for (std::thread& t : others) t.join();
}

void HttpServer::State::stop() {
  // One after the other: who was accepted by the first is cut off by the second.
  const bool again = stopping.exchange(true);
  asio::post(acceptor_.get_executor(),
             [self = shared_from_this(), again] { again ? self->cut_all() : self->begin_stop(); });
}

void HttpServer::State::cut_all() {
  error_code ignored;
  acceptor_.close(ignored);
  const std::lock_guard lock(mutex_);
  for (const auto& [connection, rest] : open_) connection->cut();
}

void HttpServer::State::begin_stop() {
  refuse_new(acceptor_.native_handle());
  const auto later = std::make_shared<asio::steady_timer>(acceptor_.get_executor(), kHandshake);
  later->async_wait([self = shared_from_this(), later](error_code) { self->accept_last(); });
  const std::lock_guard lock(mutex_);
  for (const auto& [connection, rest] : open_) connection->last_words();
}

// Those that the system has accepted already are clients as well.
void HttpServer::State::accept_last() {
  error_code failed;
  while (!failed) {
    tcp::socket socket(asio::make_strand(io));
    acceptor_.accept(socket, failed);
    if (!failed) admit(std::move(socket));
  }
  acceptor_.close(failed);
}

HttpServer::HttpServer(const HttpOptions& options, Handler handler, Refused refused)
    : state_(std::make_shared<State>(options, std::move(handler), std::move(refused))) {}
HttpServer::~HttpServer() { state_->io.stop(); }
int HttpServer::port() const { return state_->port; }
int64_t HttpServer::connections() const { return state_->count(); }
void HttpServer::run() { state_->run(); }
void HttpServer::stop() { state_->stop(); }

}  // namespace heed::serve
