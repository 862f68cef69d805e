"""Stop words: the function words of the larger languages, dropped from documents and queries alike.

Articles, pronouns, prepositions, conjunctions, auxiliaries and question words are so frequent that
they take most of a keyword index's time, and they carry no information about a text. The lists are
short on purpose (content words such as "system" or "new" are searched) and part of this module: a
package that changes its lists would change the terms of indexes on disk without a new
`ANALYZER_VERSION`. A language without a list has no stop words; its frequent words then have a low
weight by their idf alone. Words are written as `words.py` folds them: NFKC, case-folded, with ASCII
apostrophes, so the German `dass` includes its old spelling.
"""

from __future__ import annotations

_LISTS: dict[str, str] = {
    "english": """
        a an the and or but nor if then than so as of in on at by for from to into onto with within
        without about between among through during before after until upon via per against toward
        towards i me my mine myself we us our ours ourselves you your yours yourself yourselves he
        him his himself she her hers herself it its itself they them their theirs themselves this
        that these those there here who whom whose which what when where why how am is are was were
        be been being have has had having do does did doing done can could shall should will would
        may might must ought cannot not no such some any each both either neither also too very just
        because while although though whether however
        isn't aren't wasn't weren't haven't hasn't hadn't don't doesn't didn't can't couldn't
        shan't shouldn't won't wouldn't mustn't mightn't needn't ain't let's""",
    "norwegian": """
        en ei et ein eit den det de dei denne dette disse og eller men for om hvis når da så som at
        enn i på av til fra frå med mot under over ved hos mellom gjennom før etter uten utan innen
        siden jeg eg meg min mitt mine mi du deg din ditt dine di han ham hun ho henne hans hennes
        seg sin sitt sine si vi oss vår vårt våre dere dykk deres deira dem dykkar man noe noen noko
        nokon nokre er var være vere vært vore blir ble bli blei blitt har hadde ha hatt kan kunne
        skal skulle vil ville må måtte bør burde ikke ikkje nei ja også òg bare berre her der
        hva kva hvem kven hvor kvar hvilken hvilket hvilke hvorfor korfor hvordan korleis
        opp ut inn ned eller enten både hver hvert kvar kvart selv sjølv jo vel altså mens""",
    "german": """
        der die das des dem den ein eine einer eines einem einen und oder aber sondern denn weil
        wenn als ob dass daß wie so da damit obwohl während bis in im an am auf aus bei beim mit
        nach seit von vom zu zum zur durch für gegen ohne um über unter vor zwischen hinter neben
        ich mich mir mein meine meiner meines meinem meinen du dich dir dein deine deiner deinem
        deinen er ihn ihm sein seine seiner seines seinem seinen sie ihr ihre ihrer ihres ihrem
        ihren ihnen es wir uns unser unsere unserer unserem unseren euch euer eure man sich selbst
        dieser diese dieses diesem diesen jener jene jenes jenem jenen jeder jede jedes jedem jeden
        bin bist ist sind seid war warst waren wart wäre wären gewesen werde wirst wird werden
        wurde wurden worden würde würden habe hast hat haben hatte hatten hätte hätten kann kannst
        können konnte konnten könnte könnten muss müssen musste mussten soll sollen sollte sollten
        will wollen wollte wollten darf dürfen mag mögen nicht kein keine keiner keines keinem
        keinen auch nur noch schon sehr hier dort dann doch etwa etwas wer wen wem wessen was
        welcher welche welches welchem welchen wann wo wohin woher warum weshalb wieso""",
    "swedish": """
        en ett den det de denna detta dessa och eller men för om när då så som att än i på av till
        från med mot under över vid hos mellan genom före efter utan inom sedan jag mig min mitt
        mina du dig din ditt dina han honom hans hon henne hennes sig sin sitt sina vi oss vår vårt
        våra ni er ert era dem dom deras man någon något några är var vara varit blir blev bli
        blivit har hade ha haft kan kunde ska skall skulle vill ville måste bör borde inte ej icke
        också bara här där vad vem vilken vilket vilka varför hur ut in upp ned både varje själv""",
    "danish": """
        en et den det de denne dette disse og eller men for om hvis når da så som at end i på af til
        fra med mod under over ved hos mellem gennem før efter uden inden siden jeg mig min mit mine
        du dig din dit dine han ham hans hun hende hendes sig sin sit sine vi os vor vort vore vores
        i jer jeres dem deres man noget nogen nogle er var være været bliver blev blive blevet har
        havde have haft kan kunne skal skulle vil ville må måtte bør burde ikke også bare kun her
        der hvad hvem hvor hvilken hvilket hvilke hvorfor hvordan op ud ind ned både hver selv""",
    "french": """
        le la les un une des du de au aux et ou mais donc ni car si que qui quoi dont où quand
        comme lorsque puisque parce à dans en par pour sur sous vers chez avec sans entre avant
        après depuis pendant contre je me moi mon ma mes tu te toi ton ta tes il elle lui se soi son
        sa ses nous notre nos vous votre vos ils elles leur leurs eux on y ce cet cette ces ceci
        cela ça celui celle ceux celles suis es est sommes êtes sont étais était étions étaient
        être étant sera seront serait soit ai as a avons avez ont avais avait avaient avoir
        eu ayant aura auront aurait fait faire peut peuvent ne pas non plus aussi très même quel
        quelle quels quelles comment pourquoi combien""",
    "spanish": """
        el la los las lo un una unos unas al del y e o u pero sino ni si que qué quien quién quienes
        quiénes cual cuál cuales cuáles cuyo cuya cuando cuándo donde dónde adónde como cómo cuanto
        cuánto cuántos cuántas porque de en a por para con sin sobre entre desde hasta hacia según
        contra durante ante tras yo me mí mi mis tú tu tus te ti él ella ello le les se sí su sus
        suyo suya nosotros nosotras nos nuestro nuestra nuestros nuestras vosotros vosotras os ellos
        ellas usted ustedes este esta estos estas esto ese esa esos esas eso aquel aquella aquellos
        aquellas soy eres es somos sois son era eras eran fue fueron ser sido siendo sea sean está
        están estaba estaban estar estado he has ha hemos han había habían haber hay no también muy
        más ya puede pueden""",
    "italian": """
        il lo la i gli le un uno una di a da in con su per tra fra del dello della dei degli delle
        al allo alla ai agli alle dal dallo dalla dai dagli dalle nel nello nella nei negli nelle
        sul sullo sulla sui sugli sulle col e ed o ma però né se che chi cui quale quali quando dove
        come perché quanto quanti quante poiché mentre io me mi mio mia miei mie tu te ti tuo tua
        tuoi tue egli lui lei esso essa ella si sé suo sua suoi sue noi ci nostro nostra nostri
        nostre voi vi vostro vostra vostri vostre essi esse loro ne questo questa questi queste
        quello quella quelli quelle ciò cosa sono sei è siamo siete era erano fu furono essere sia
        siano ho hai ha abbiamo avete hanno aveva avevano avere avuto può possono non anche più
        molto già""",
    "dutch": """
        de het een en of maar want als dan dat die dit deze toen terwijl omdat hoewel zodat dus in
        op aan van voor door met bij naar uit over onder tot tegen tussen om zonder sinds tijdens na
        te ik mij me mijn jij je jou jouw u uw hij hem zijn zij ze haar wij we ons onze jullie hun
        hen zich men er hier daar is ben bent was waren wees geweest wordt worden werd werden
        geworden heb hebt heeft hebben had hadden gehad kan kunnen kon konden zal zullen zou zouden
        wil willen wilde moet moeten moest mag mogen niet geen ook al nog wel zeer wat wie welk
        welke waar wanneer waarom hoe""",
    "portuguese": """
        o a os as um uma uns umas de do da dos das em no na nos nas num numa por pelo pela pelos
        pelas para com sem sobre entre desde até contra durante ao aos à às e ou mas nem se que quê
        quem qual quais cujo cuja quando onde como quanto quantos quantas porque porquê pois eu me
        mim meu minha meus minhas tu te ti teu tua teus tuas ele ela lhe lhes seu sua seus suas si
        nós nosso nossa nossos nossas vós você vocês eles elas este esta estes estas isto esse essa
        esses essas isso aquele aquela aqueles aquelas aquilo sou é és somos são era eram foi foram
        ser sido sendo seja sejam está estão estava estavam estar tenho tem têm temos tinha tinham
        ter há havia não também muito mais já pode podem""",
    "russian": """
        и а но или да либо же ли бы не ни в во на к ко с со от до из изо у о об обо по за при про
        для под над без через между перед около что чтобы как так если когда где куда откуда потому
        почему зачем хотя я меня мне мной мой моя моё моё мои ты тебя тебе тобой твой твоя твои он
        его него ему нему им ним нём нем она её нее неё ей ней ею оно мы нас нам нами наш наша наше
        наши вы вас вам вами ваш ваша ваше ваши они их них ими ними себя себе собой свой своя своё
        свои этот эта это эти этого этой этих этому этим тот та то те того той тех тому тем том кто
        кого кому кем ком чего чему чем какой какая какое какие который которая которое которые
        которого которой которых сколько есть был была было были быть будет будут является
        являются уже ещё еще только также тоже очень""",
    "finnish": """
        ja tai vai sekä että mutta vaan jos kun koska kuin kuten niin myös vaikka jotta eli minä
        minun minua minulle sinä sinun sinua hän hänen häntä hänelle me meidän meitä te teidän teitä
        he heidän heitä se sen sitä siinä siitä sille ne niiden niitä tämä tämän tätä tässä tästä
        nämä näiden näitä tuo tuon tuota joka jonka jota jossa josta jotka joiden joita jokin kuka
        kenen ketä ketkä mikä minkä mitä missä mistä mihin milloin miksi miten kuinka olen olet on
        olemme olette ovat oli olivat ollut olla ole olisi en et ei emme ette eivät voi voivat""",
    "arabic": """
        في من الى إلى على عن مع بين حتى منذ عند بعد قبل خلال حول دون و أو او ثم لكن بل إن أن ان
        إذا اذا لو لا لم لن ما ليس ليست قد لقد كان كانت كانوا يكون تكون هو هي هم هن هما أنا نحن أنت
        أنتم هذا هذه هذان هؤلاء ذلك تلك أولئك الذي التي الذين اللذان اللواتي كل أي كما كيف متى أين
        لماذا ماذا هل كم به بها له لها لهم فيه فيها منه منها عليه عليها إليه أيضا""",
    "hindi": """
        का के की को में से पर ने तक और या तो भी ही कि जो जब तब यदि अगर लेकिन मगर क्योंकि एवं तथा है
        हैं था थी थे हो होता होती होते हुआ हुई हुए होना रहा रही रहे गया गई गए कर करना करता करती करते
        किया मैं मुझे मेरा मेरी मेरे हम हमें हमारा हमारी हमारे तू तुम तुम्हारा आप आपका आपकी आपके वह वे
        वो उस उसे उसका उसकी उसके उन उन्हें उनका उनकी उनके यह ये इस इसे इसका इसकी इसके इन इनका इनकी इनके
        अपना अपनी अपने जिस जिसका जिसकी जिसके जिन कौन किस किसका किसकी किसके किसे क्या कब कहाँ कैसे क्यों
        कितना कितनी कितने कौनसा नहीं न लिए साथ द्वारा""",
    "turkish": """
        bir ve veya ya da de ile için gibi kadar ki ama fakat ancak çünkü eğer ise hem ne bu şu o
        bunun buna bunu bunlar şunlar onlar ben beni bana benim sen seni sana senin onu ona onun biz
        bizi bize bizim siz sizi size sizin onları onların kendi mi mı mu mü değil var yok olan
        olarak olduğu olur idi daha en çok her kim kimin hangi nasıl neden niçin nerede nereye
        göre sonra önce""",
}

STOP_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split()) for language, words in _LISTS.items()
}
"""Folded words that are not indexed, by language name."""

_CLITICS: dict[str, str] = {
    "english": "s t d m ll re ve em",
    "norwegian": "s",
    "german": "s",
    "swedish": "s",
    "danish": "s",
    "dutch": "s t n",
    "french": "l d j m t s c n qu jusqu lorsqu puisqu quoiqu",
    "catalan": "l d m t s n",
    "italian": "l d c m t s v n un all dall dell nell sull coll quest quell gl agl dagl degl negl",
    "irish": "d m b",
    "turkish": """
        a e ı i u ü ya ye yı yi yu yü na ne nı ni nu nü da de ta te dan den tan ten ın in un ün nın
        nin nun nün la le yla yle lı li lu lü daki deki taki teki dır dir dur dür tır tir tur
        tür""",
}

CLITICS: dict[str, frozenset[str]] = {
    language: frozenset(parts.split()) for language, parts in _CLITICS.items()
}
"""Clitics that are dropped next to an apostrophe, by language name: `it's`, `l'eau`, `İstanbul'da`.
Alone these are ordinary words (`vitamin d`)."""
