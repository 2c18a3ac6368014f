(() => {
  const by = id => document.getElementById(id), lost = by('lost'), live = by('live'), all = s => [...document.querySelectorAll(s)]
  const behind = Date.now() - document.body.dataset.now
  let at = Date.now(), over = false, here = ''
  const span = s => s < 60 ? s + ' s' : s < 3600 ? (s / 60 | 0) + ' m ' + s % 60 + ' s' : s < 86400 ? (s / 3600 | 0) + ' h ' + (s / 60 | 0) % 60 + ' m' : (s / 86400 | 0) + ' d ' + (s / 3600 | 0) % 24 + ' h'
  // Times go on by themselves, until the agent is not heard any more.
  const tick = () => {
    const now = (lost.hidden && !over ? Date.now() : at) - behind
    for (const t of all('time[data-since]')) t.textContent = span(Math.max(0, Math.floor((now - t.dataset.since) / 1000)))
  }
  // A cell is reached by arrows, and all of them are one stop of the Tab key.
  const cells = () => all('article a')
  const stops = root => { for (const a of root.querySelectorAll('article a')) a.tabIndex = a.id === here ? 0 : -1 }
  const first = () => { if (!by(here)) { const a = cells()[0]; if (a) { here = a.id; a.tabIndex = 0 } } }
  const put = (id, html) => {
    const old = by(id), t = document.createElement('template')
    if (!old) return
    t.innerHTML = html
    const focus = old.contains(document.activeElement) && document.activeElement.id, opened = [old, ...old.querySelectorAll('details[open]')].filter(d => d.open).map(d => d.id)
    stops(t.content)
    old.replaceWith(t.content)
    for (const d of opened) if (by(d)) by(d).open = true
    if (focus && by(focus)) by(focus).focus({preventScroll: true})
  }
  const tell = e => { const a = e.target.closest && e.target.closest('article a'); if (a) by('told').textContent = a.getAttribute('aria-label') + ', ' + a.closest('article').getAttribute('aria-label') }
  document.addEventListener('mouseover', tell)
  document.addEventListener('focusin', e => {
    const a = e.target.closest('article a')
    if (!a) return
    if (by(here)) by(here).tabIndex = -1
    here = a.id; a.tabIndex = 0; tell(e)
  })
  document.addEventListener('keydown', e => {
    const a = document.activeElement.closest('article a'), list = a ? cells() : [], i = list.indexOf(a), at = a && a.getBoundingClientRect()
    const below = d => { for (let j = i + d; list[j]; j += d) { const b = list[j].getBoundingClientRect(); if ((b.top - at.top) * d > 4 && Math.abs(b.left - at.left) < 4) return j } }
    const to = {ArrowRight: () => i + 1, ArrowLeft: () => i - 1, ArrowDown: () => below(1), ArrowUp: () => below(-1), Home: () => 0, End: () => list.length - 1}[e.key]
    if (i < 0 || !to || e.ctrlKey || e.altKey || e.metaKey) return
    e.preventDefault()
    if (list[to()]) list[to()].focus()
  })
  const source = new EventSource('events?seen=' + document.body.dataset.seen)
  const heard = () => { at = Date.now(); lost.hidden = true; live.textContent = 'live' }
  source.onopen = heard
  source.onmessage = e => {
    heard()
    const parts = JSON.parse(e.data)
    for (const id in parts) put(id, parts[id])
    document.title = by('head').dataset.title; by('icon').href = by('head').dataset.icon
    first(); tick()
  }
  source.addEventListener('end', () => { source.close(); at = Date.now(); over = true; lost.textContent = 'The agent has ended (' + new Date(at).toLocaleTimeString() + '). This is the last that it said.'; lost.hidden = false; live.textContent = 'as of ' + new Date(at).toLocaleTimeString() })
  source.onerror = () => { if (!over && lost.hidden) { lost.textContent = 'No connection to the agent since ' + new Date().toLocaleTimeString() + '. What stands here was so then.'; lost.hidden = false; live.textContent = 'as of ' + new Date(at).toLocaleTimeString() } }
  stops(document); first(); tick()
  setInterval(tick, 1000)
})()
