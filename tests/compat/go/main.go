// Storm sends and consumes many kinds at once, while somebody else stops brokers:
//
//	storm <name servers> <run> <period ms> <kind>...
//
// On standard input it is told what to do: start, send, join (a second consumer each), leave (the first of each),
// stop (sending), exit. Its journal goes to standard output. Topics are there before it starts.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type traffic struct {
	setting   *Setting
	sender    Sender
	consumers map[string]func() error
}

func (t *traffic) begin() (err error) {
	t.sender, err = newSender(t.setting)
	return err
}

func (t *traffic) start(name string) error {
	end, err := newConsumer(t.setting, name)
	if err == nil {
		t.consumers[name] = end
	}
	return err
}

func (t *traffic) end(name string) error {
	if end, ok := t.consumers[name]; ok {
		return end()
	}
	return nil
}

type storm struct {
	journal   *Journal
	all       []*traffic
	period    time.Duration
	isStopped atomic.Bool
}

// atOnce has every kind take a step; what fails is written down for its kind, and the others go on.
func (st *storm) atOnce(phase string, step func(*traffic) error) {
	var group sync.WaitGroup
	for _, each := range st.all {
		group.Add(1)
		go func(each *traffic) {
			defer group.Done()
			if err := step(each); err != nil {
				st.journal.trouble(each.setting.kind, err)
			}
		}(each)
	}
	group.Wait()
	st.journal.phase(phase)
}

func (st *storm) send(each *traffic) {
	for number := 0; !st.isStopped.Load() && each.sender != nil; number++ {
		each.sender(number)
		time.Sleep(st.period)
	}
}

func (st *storm) obey(order string) {
	switch order {
	case "start":
		st.atOnce("started", func(each *traffic) error { return each.start("first") })
	case "send":
		for _, each := range st.all {
			go st.send(each)
		}
	case "join":
		st.atOnce("joined", func(each *traffic) error { return each.start("second") })
	case "leave":
		st.atOnce("left", func(each *traffic) error { return each.end("first") })
	case "stop":
		st.isStopped.Store(true)
		st.journal.phase("stopped")
	case "exit":
		os.Exit(0)
	default:
		panic("no such order: " + order)
	}
}

func main() {
	rlog.SetLogLevel("warn")
	// An async send or a request that no broker answers has 2.1.2 read the missing answer.
	primitive.PanicHandler = func(failure any) { fmt.Fprintln(os.Stderr, "panic in the client:", failure) }
	period, err := strconv.Atoi(os.Args[3])
	if err != nil {
		panic(err)
	}
	st := &storm{journal: newJournal(os.Stdout), period: time.Duration(period) * time.Millisecond}
	// The client prints here and there; standard output is the journal's.
	os.Stdout = os.Stderr
	for _, kind := range os.Args[4:] {
		setting := newSetting(strings.Split(os.Args[1], ";"), os.Args[2], kind, st.journal)
		st.all = append(st.all, &traffic{setting: setting, consumers: map[string]func() error{}})
	}
	st.atOnce("ready", (*traffic).begin)
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		st.obey(orders.Text())
	}
}
