// Keeps a page as the registry is, and finds what somebody types. Without it every page works, as it was when it was asked for.
"use strict";

(() => {
  const SEARCH_AFTER = 200; // ms since the last key
  const AGAIN_AFTER = 3000; // ms until a stream that is lost is begun anew
  const live = document.getElementById("live");
  const found = document.getElementById("found");
  const text = document.getElementById("text");
  const main = () => document.getElementById("main"); // another one each time that the page is renewed
  const topic = main().dataset.live;

  // -- asking: the browser reads the answer as a page, and runs nothing of it

  function ask(path, shown, failed) {
    const request = new XMLHttpRequest();
    request.open("GET", path);
    request.responseType = "document";
    request.onload = () => (request.status < 500 && request.response ? shown(request.response) : failed());
    request.onerror = failed;
    request.send();
    return request;
  }

  // -- the search

  let waiting = 0;
  let searching = null;

  function search() {
    const typed = text.value.trim();
    if (searching) searching.abort();
    if (!typed) {
      found.hidden = true;
      return;
    }
    searching = ask("/find?" + new URLSearchParams({ text: typed }), (page) => {
      if (text.value.trim() !== typed) return;
      const hits = page.getElementById("hits") || page.querySelector("#main p");
      found.replaceChildren(document.importNode(hits, true));
      found.firstChild.removeAttribute("id");
      found.hidden = false;
    }, () => {});
  }

  text.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(search, SEARCH_AFTER);
  });
  text.addEventListener("keydown", (event) => {
    if (event.key === "Escape") found.hidden = true;
  });

  // -- live

  let stream = null;
  let heard = 0; // when the stream said something, ms
  let lost = 0; // since when it does not, ms
  let renewing = null;
  let again = false;

  function say(words, bad) {
    live.textContent = words;
    live.className = bad ? "lost" : "";
  }

  function clock(at) {
    return new Date(at).toTimeString().slice(0, 8);
  }

  function renew() {
    if (renewing) {
      again = true;
      return;
    }
    const done = () => {
      renewing = null;
      if (again) {
        again = false;
        renew();
      }
    };
    renewing = ask(location.href, (page) => {
      const focused = document.activeElement && main().contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      main().replaceWith(document.importNode(page.getElementById("main"), true));
      document.title = page.title;
      const same = focused && [...main().querySelectorAll("a")].find((each) => each.getAttribute("href") === focused);
      if (same) same.focus();
      done();
    }, done);
  }

  function sign(event) {
    heard = Date.now();
    const age = Number(event.data) || 0;
    if (age) say("The store has not answered for " + age + " seconds: this is what was known then.", true);
    else if (lost || main().dataset.age !== "0") renew();
    if (!age) say("Live", false);
    lost = 0;
  }

  function begin() {
    if (stream || !topic || document.hidden) return;
    heard = Date.now();
    stream = new EventSource("/live?" + new URLSearchParams({ about: topic, at: main().dataset.revision }));
    stream.addEventListener("beat", sign);
    stream.addEventListener("changed", () => {
      heard = Date.now();
      renew();
    });
    stream.onerror = () => end(true);
  }

  function end(broken) {
    if (stream) stream.close();
    stream = null;
    if (!broken) return;
    lost = lost || heard || Date.now();
    say("Not live since " + clock(lost) + ": this is what was so then. Trying again.", true);
    setTimeout(begin, AGAIN_AFTER);
  }

  setInterval(() => {
    if (stream && Date.now() - heard > main().dataset.lost * 1000) end(true);
  }, 1000);
  // a browser has six connections to one place: a page that nobody looks at leaves them to others
  document.addEventListener("visibilitychange", () => (document.hidden ? end(false) : begin()));
  addEventListener("pagehide", () => end(false));
  addEventListener("pageshow", begin);
  begin();
})();
